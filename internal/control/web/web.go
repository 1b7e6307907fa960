// Package web is the console in the browser. It shows what the relay's own answers say, and
// judges nothing by itself.
//
// To add a page, add a row to pages and a file templates/NAME.html that defines "main"; the
// navigation and the session are taken care of by the row. Nobody has a role yet: whoever has a
// session sees all pages, and none of them acts.
package web

import (
	"bytes"
	"context"
	"embed"
	"html/template"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/internal/workspace"
)

//go:embed templates
var files embed.FS

// policy lets a page load nothing except the console's own style sheet.
const policy = "default-src 'none'; style-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

// Options give a console its parts.
type Options struct {
	// Status gives the sections of /status.
	Status func(context.Context) map[string]any
	Logger *slog.Logger
}

// Console serves the pages. It is safe for concurrent use.
type Console struct {
	opts     Options
	sessions *sessions
	all      http.Handler
}

// page is a row of the table of pages.
type page struct {
	path, title, file string
	// data is what the template shows.
	data func(*Console, *http.Request) any
}

// pages are all pages, in the order of the navigation.
var pages = []page{
	{"/", "Overview", "overview.html", (*Console).overview},
}

// New makes a console.
func New(o Options) *Console {
	c := &Console{opts: o, sessions: newSessions()}
	mux := http.NewServeMux()
	for _, p := range pages {
		pattern := "GET " + p.path
		if p.path == "/" {
			pattern += "{$}"
		}
		mux.Handle(pattern, c.show(p))
	}
	mux.HandleFunc("GET /style.css", func(w http.ResponseWriter, r *http.Request) {
		http.ServeFileFS(w, r, files, "templates/style.css")
	})
	mux.HandleFunc("GET "+linkPath+"{token}", c.login)
	mux.HandleFunc("POST /logout", c.logout)
	c.all = http.NewCrossOriginProtection().Handler(mux)
	return c
}

// ServeHTTP answers browsers that call the console by an address or name of this machine. A web
// page can point a name of its own at the listener.
func (c *Console) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Security-Policy", policy)
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "no-store")
	host, _, err := net.SplitHostPort(r.Host)
	if err != nil {
		host = r.Host
	}
	if !config.IsLoopback(strings.Trim(host, "[]")) {
		http.Error(w, "the console answers on this machine only, as localhost or by its loopback address", http.StatusMisdirectedRequest)
		return
	}
	c.all.ServeHTTP(w, r)
}

// Link makes the path of a link that logs in its first visitor as a person, and says until when.
func (c *Console) Link(by workspace.Person) (path string, until time.Time) {
	token, until := c.sessions.link(by)
	return linkPath + token, until
}

// shown is what the layout shows.
type shown struct {
	Title  string
	Path   string
	Pages  []named
	Person string
	Data   any
}

type named struct{ Path, Title string }

func (c *Console) show(p page) http.Handler {
	t := template.Must(template.New("layout.html").Funcs(helpers).ParseFS(files, "templates/layout.html", "templates/"+p.file))
	var all []named
	for _, p := range pages {
		all = append(all, named{p.path, p.title})
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		person, in := c.sessions.person(r)
		if !in {
			http.Error(w, "You are not logged in. Run 'auditrelay console open' on this machine, and open the link that it prints.", http.StatusUnauthorized)
			return
		}
		var body bytes.Buffer
		if err := t.Execute(&body, shown{p.title, p.path, all, person.String(), p.data(c, r)}); err != nil {
			c.opts.Logger.Error("a page of the console cannot be shown", "page", p.path, "error", err)
			http.Error(w, "this page cannot be shown; the relay's log says why", http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		_, _ = w.Write(body.Bytes()) // the browser has gone
	})
}
