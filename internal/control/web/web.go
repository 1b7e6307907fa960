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
	"net/url"
	"strings"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/internal/control/access"
	"github.com/auditrelay/auditrelay/internal/control/console"
	"github.com/auditrelay/auditrelay/internal/trail/tiles"
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

// page is a row of the table of pages.
type page struct {
	path, title, file string
	least             access.Role
	// data is what the template shows.
	data func(*asked) (any, error)
	// under is the path of the page that this one belongs to; empty for those in the navigation.
	under string
}

// action changes something, by POST. It is first asked for its plan, which a person confirms.
type action struct {
	path, title string
	least       access.Role
	// prepare reads what is asked for, and changes nothing.
	prepare func(*asked) (prepared, error)
}

// prepared is an action as it was asked for.
type prepared struct {
	// plan changes nothing. It tells what do would do.
	plan func() (plan, error)
	do   func() (done, error)
}

// plan is a dry run.
type plan struct {
	// Says are sentences on what would happen.
	Says []string
	// Head and Rows are a table of it; Rows may be empty.
	Head []string
	Rows [][]string
	// Button is the text of what confirms, such as "Discard 3 dead letters". It is empty where there
	// is nothing to do.
	Button string
	// With are further fields that do will be asked with, apart from those of this request.
	With url.Values
}

// done is the end of an action: a message to the person, and the page to see it on.
type done struct{ message, path string }

// feed answers with something other than a page: a file, a picture, or a stream.
type feed struct {
	path  string
	least access.Role
	serve handler
}

// pages are all pages, in the order of the navigation.
var pages = []page{
	{path: "/", title: "Overview", file: "overview.html", least: access.Viewer, data: overviewOf},
	{path: changesPath, title: "Changes", file: "changes.html", least: access.Viewer, data: changesOf},
	{path: changesPath + "/{index}", title: "Entry", file: "entry.html", least: access.Viewer, data: entryOf, under: changesPath},
	{path: statesPath, title: "States", file: "states.html", least: access.Viewer, data: statesOf, under: changesPath},
	{path: policiesPath, title: "Policies", file: "policies.html", least: access.Viewer, data: policiesOf},
	{path: streamingPath, title: "Streaming", file: "streaming.html", least: access.Viewer, data: flowOf},
	{path: streamingPath + "/{project}/{environment}", title: "Streaming", file: "history.html", least: access.Viewer, data: historyOf, under: streamingPath},
	{path: sinksPath, title: "Sinks", file: "sinks.html", least: access.Viewer, data: sinksOf},
	{path: sinkPath + "{sink}", title: "Sink", file: "sink.html", least: access.Viewer, data: sinkOf, under: sinksPath},
	{path: lettersPath, title: "Dead letters", file: "letters.html", least: access.Viewer, data: lettersOf, under: sinksPath},
	{path: lettersPath + "/{number}", title: "Dead letter", file: "letter.html", least: access.Viewer, data: letterOf, under: sinksPath},
	{path: jobsPath + "/{id}", title: "Work under way", file: "job.html", least: access.Operator, data: jobOf, under: sinksPath},
	{path: livePath, title: "Live", file: "live.html", least: access.Viewer, data: liveOf},
	{path: "/sessions", title: "Sessions", file: "sessions.html", least: access.Operator, data: sessionsOf},
	{path: "/prove", title: "Prove", file: "prove.html", least: access.Auditor, data: proveOf},
}

var actions = []action{
	{path: changesPath + "/{index}/annotate", title: "Review an entry", least: access.Auditor, prepare: annotate},
	{path: streamingPath + "/apply", title: "Set the streaming config", least: access.Operator, prepare: applyStream},
	{path: streamingPath + "/rotate", title: "Rotate a push credential", least: access.Operator, prepare: rotateCredential},
	{path: "/silences/add", title: "Silence alarms", least: access.Operator, prepare: addSilence},
	{path: "/silences/end", title: "End a silence", least: access.Operator, prepare: endSilence},
	{path: lettersPath + "/replay", title: "Replay dead letters", least: access.Operator, prepare: replayLetters},
	{path: lettersPath + "/discard", title: "Discard dead letters", least: access.Operator, prepare: discardLetters},
	{path: sinksPath + "/replay", title: "Replay a time", least: access.Operator, prepare: replaySpan},
	{path: jobsPath + "/{id}/stop", title: "Stop work", least: access.Operator, prepare: stopWork},
	{path: "/sessions/revoke", title: "Log a person out", least: access.Operator, prepare: logOut},
}

var feeds = []feed{
	{path: exportPath, least: access.Viewer, serve: exportChanges},
	{path: changesPath + "/{index}/text", least: access.Viewer, serve: entryText},
	{path: changesPath + "/{index}/mail", least: access.Viewer, serve: entryMail},
	{path: tiles.Prefix, least: access.Auditor, serve: trailFiles},
	{path: "/prove/policy", least: access.Auditor, serve: trailPolicy},
}
