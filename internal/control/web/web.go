// Package web is the console in the browser. It asks the relay what the command line asks, by the
// same client, and judges nothing by itself.
//
// To add a page, add a row to pages, and a file templates/NAME.html that defines "main"; to add an
// action, a row to actions. The rows take care of the navigation, the session, the role, and of
// errors. Whatever lies in assets is served to everybody under /assets/.
//
// Reading works without any script: a page's whole state is in its address, and forms are plain. All
// text from outside is shown in <bdi>, so that its direction reaches no further.
package web

import (
	"context"
	"embed"
	"html/template"
	"log/slog"
	"net/http"
	"strings"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/internal/control/access"
	"github.com/auditrelay/auditrelay/internal/control/console"
	"github.com/auditrelay/auditrelay/internal/workspace"
)

//go:embed templates assets
var files embed.FS

// contentPolicy lets a page load nothing except the console's own files, and run no script in its text.
const contentPolicy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; frame-src 'self'; " +
	"form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

// Options give a console its parts.
type Options struct {
	// Ask makes a client for a person. Its error says why the relay answers nobody.
	Ask func(by workspace.Person) (*console.Client, error)
	// Trail gives the files of the trail. Its error says why this relay has none.
	Trail func() (*Trail, error)
	// Access knows who visits.
	Access *access.Access
	// Policies gives the rules of the running configuration.
	Policies func() config.Policies
	Logger   *slog.Logger

	jobs  *jobs
	deeds *deeds
}

// Console serves the pages. It is safe for concurrent use.
type Console struct {
	opts      Options
	templates map[string]*template.Template // by file
	all       http.Handler
	streams   streams         // of live events
	stopping  context.Context // ends when they have to
	end       context.CancelFunc
}

// New makes a console.
func New(o Options) *Console {
	o.jobs, o.deeds = &jobs{}, &deeds{}
	c := &Console{opts: o, templates: parse()}
	c.stopping, c.end = context.WithCancel(context.Background())
	mux := http.NewServeMux()
	for _, p := range pages {
		mux.Handle("GET "+exactly(p.path), c.guard(p.least, c.page(p)))
	}
	for _, a := range actions {
		mux.Handle("POST "+a.path, c.guard(a.least, c.action(a)))
	}
	for _, f := range feeds {
		mux.Handle("GET "+f.path, c.guard(f.least, f.serve))
	}
	mux.Handle("GET "+streamPath, c.guardOf(o.Access.Still, access.Viewer, c.follow))
	mux.HandleFunc("GET /assets/", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "public, max-age=300")
		http.ServeFileFS(w, r, files, strings.TrimPrefix(r.URL.Path, "/"))
	})
	mux.Handle("GET "+scriptsPath+"{hash}/{name}", serveScript)
	o.Access.Register(mux)
	mux.Handle("/", c.guard(access.Viewer, func(http.ResponseWriter, *asked) error {
		return &problem{http.StatusNotFound, "There is no such page.", "Choose one in the navigation."}
	}))
	c.all = http.NewCrossOriginProtection().Handler(mux)
	return c
}

// EndStreams ends the streams of live events, which a server that shuts down would wait for.
func (c *Console) EndStreams() { c.end() }

// exactly is the pattern of a path alone, and not of those below it.
func exactly(path string) string {
	if strings.HasSuffix(path, "/") {
		return path + "{$}"
	}
	return path
}

// ServeHTTP answers browsers that call the console by one of its own names.
func (c *Console) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Security-Policy", contentPolicy)
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "no-store")
	if !c.opts.Access.Admits(r) {
		http.Error(w, "the console does not answer by this name: call it by that of console.url, or on the relay's machine as localhost", http.StatusMisdirectedRequest)
		return
	}
	c.all.ServeHTTP(w, r)
}

// asked is what a page is asked, and by whom.
type asked struct {
	ctx     context.Context
	request *http.Request // its form is parsed
	person  workspace.Person
	role    access.Role
	client  *console.Client
	opts    *Options
}

// value is a field of the form or the address.
func (a *asked) value(name string) string { return strings.TrimSpace(a.request.Form.Get(name)) }
