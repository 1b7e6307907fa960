package web

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"html/template"
	"io/fs"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/klauspost/compress/gzhttp"

	"github.com/auditrelay/auditrelay/internal/control/access"
	"github.com/auditrelay/auditrelay/internal/control/console"
	"github.com/auditrelay/auditrelay/internal/plaintext"
	"github.com/auditrelay/auditrelay/internal/trail/audit"
	"github.com/auditrelay/auditrelay/internal/trail/timeline"
	"github.com/auditrelay/auditrelay/internal/workspace/kinds"
)

// parse reads all templates: each with the layout and the parts.
func parse() map[string]*template.Template {
	all := map[string]*template.Template{}
	of := func(file string) {
		all[file] = template.Must(template.New("layout.html").Funcs(helpers).ParseFS(files, "templates/layout.html", "templates/parts.html", "templates/"+file))
	}
	of(problemFile)
	of(confirmFile)
	for _, p := range pages {
		of(p.file)
	}
	return all
}

const (
	problemFile = "problem.html"
	confirmFile = "confirm.html"
)

// shown is what the layout shows.
type shown struct {
	Title  string
	Path   string // of the page in the navigation
	Pages  []named
	Person string // empty: nobody is logged in
	Role   access.Role
	Notice string
	Data   any
}

type named struct{ Path, Title string }

// navigation are the pages that a role may see.
func navigation(role access.Role) (all []named) {
	for _, p := range pages {
		if p.under == "" && role >= p.least {
			all = append(all, named{p.path, p.title})
		}
	}
	return all
}

// handler answers a request. Its error, before the first byte, is shown as a problem.
type handler func(http.ResponseWriter, *asked) error

// guard lets those in who have a session and at least a role.
func (c *Console) guard(least access.Role, next handler) http.Handler {
	return c.guardOf(c.opts.Access.Of, least, next)
}

// guardOf is guard with a way to know the visitor.
func (c *Console) guardOf(of func(*http.Request) (access.Visitor, bool), least access.Role, next handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		const most = 1 << 20
		r.Body = http.MaxBytesReader(w, r.Body, most)
		a := &asked{ctx: r.Context(), request: r, opts: &c.opts}
		visitor, in := of(r)
		if !in {
			c.opts.Access.Ask(w, r)
			return
		}
		a.person, a.role = visitor.Person, visitor.Role
		limit(w, longestWork)
		err := r.ParseForm()
		switch {
		case err != nil:
			err = &problem{http.StatusBadRequest, "The form cannot be read: " + err.Error(), "Go back, and send a shorter one."}
		case a.role < least:
			err = notAllowed(a.role, least)
		default:
			a.client, err = c.opts.Ask(a.person)
		}
		if err == nil {
			err = next(w, a)
		}
		if err != nil {
			c.fail(w, a, err)
		}
	})
}

func (c *Console) page(p page) handler {
	return func(w http.ResponseWriter, a *asked) error {
		data, err := p.data(a)
		if err != nil {
			return err
		}
		status := http.StatusOK
		if asks, is := data.(interface{ wrong() bool }); is && asks.wrong() {
			status = http.StatusBadRequest
		}
		c.render(w, a, status, p.file, shown{Title: p.title, Path: cmp.Or(p.under, p.path), Notice: takeNotice(w, a.request), Data: data})
		return nil
	}
}

// mistake is what is wrong with the form of a page, which shows it next to the form.
type mistake struct{ Error string }

func (m mistake) wrong() bool { return m.Error != "" }

// render writes a page once all of it is made.
func (c *Console) render(w http.ResponseWriter, a *asked, status int, file string, s shown) {
	if a.role >= access.Viewer {
		s.Pages, s.Person, s.Role = navigation(a.role), a.person.String(), a.role
	}
	var body bytes.Buffer
	if err := c.templates[file].Execute(&body, s); err != nil {
		c.opts.Logger.Error("a page of the console cannot be shown", "page", a.request.URL.Path, "error", err)
		http.Error(w, "this page cannot be shown; the relay's log says why", http.StatusInternalServerError)
		return
	}
	write(w, status, "text/html; charset=utf-8", body.Bytes())
}

const (
	// longestWork is the time for an answer: the plan of a replay reads the whole journal.
	longestWork = 10 * time.Minute
	// answerPatience is how long a browser may take for an answer, or a piece of it.
	answerPatience = 30 * time.Second
)

// write writes a whole answer.
func write(w http.ResponseWriter, status int, media string, body []byte) {
	w.Header().Set("Content-Type", media)
	w.WriteHeader(status)
	_, _ = writeWithin(w, answerPatience, body) // or the browser has gone
}

// problem is a page that says why there is no other.
type problem struct {
	status         int
	Reason, Remedy string
}

func (p *problem) Error() string { return p.Reason }

// remedies are what a person can do, by the status of an answer that says nothing of it.
var remedies = map[int]string{
	http.StatusBadRequest: "Go back, and correct what you have entered.",
	http.StatusNotFound:   "It may have been removed meanwhile. Go back, and reload the page.",
	http.StatusConflict:   "Nothing was changed. Go back, reload the page, and try again if it still applies.",
}

// badRequest is the problem of a form that cannot be read; nil of a nil error.
func badRequest(err error) error {
	if err == nil {
		return nil
	}
	return &problem{http.StatusBadRequest, err.Error(), remedies[http.StatusBadRequest]}
}

// notAllowed is the problem of somebody whose role is too low.
func notAllowed(role, least access.Role) *problem {
	return &problem{http.StatusForbidden, "Your role is " + role.String() + ". This takes the role " + least.String() + ".", "Ask somebody with that role, or whoever gives out the roles."}
}

// problemOf explains an error.
func problemOf(err error) *problem {
	var p *problem
	var refused *console.Refused
	switch {
	case errors.As(err, &p):
		return p
	case errors.As(err, &refused) && refused.Status < http.StatusInternalServerError:
		return &problem{refused.Status, refused.Reason, remedies[refused.Status]}
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return &problem{http.StatusServiceUnavailable, "The relay did not answer in time.", "Ask for less at a time, or try again."}
	}
	return &problem{http.StatusServiceUnavailable, err.Error(), "Try again in a moment. If it stays so, the relay's log and 'auditrelay status' say more."}
}

func (c *Console) fail(w http.ResponseWriter, a *asked, err error) {
	p := problemOf(err)
	if p.status >= http.StatusInternalServerError && a.ctx.Err() == nil {
		c.opts.Logger.Warn("a page of the console has only an error", "page", a.request.URL.Path, "error", err)
	}
	c.render(w, a, p.status, problemFile, shown{Title: "This cannot be shown", Data: p})
}

// helpers are the functions of the templates.
var helpers = template.FuncMap{
	"stamp":  func(t time.Time) string { return t.UTC().Format(time.RFC3339) },
	"unix":   func(t time.Time) int64 { return t.Unix() },
	"at":     func(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 UTC") },
	"length": length,
	"percent": func(part, whole int64) string {
		return fmt.Sprintf("%.1f %%", 100*float64(part)/float64(max(1, whole)))
	},
	"rate":   rate,
	"spark":  sparkOf,
	"size":   size,
	"cut":    func(most int, text string) string { return marked(text, most) },
	"window": func(w *audit.Window) string { return w.Until.Sub(w.After).Round(time.Second).String() },
	"place": func(project, environment string) string {
		return strings.TrimSuffix(name(project)+"/"+name(environment), "/")
	},
	"name":  name,
	"short": timeline.ShortName,
	"add":   func(a, b int64) int64 { return a + b },

	"severities": timeline.Severities,
	"directions": timeline.Directions,
	"kinds":      kinds.All,
	"fields":     func() any { return filterFields },

	"readable":  readable,
	"difflines": diffLines,
	"script":    scriptPath,
}

// name bounds a name in a page, which may be of any length where it is an event's or the API's. The
// exports and the command line have the whole.
func name(text string) string { return marked(text, 200) }

// marked bounds a text in a page, and shows the characters that hide or reorder text by their numbers.
func marked(text string, most int) string {
	return plaintext.Escape([]byte(cut(strings.ToValidUTF8(text, "�"), most)), func(r rune) string { return fmt.Sprintf(`\u{%x}`, r) })
}

func rate(perSecond float64) string {
	if perSecond > 0 && perSecond < 1 {
		return fmt.Sprintf("%.1f/min", 60*perSecond)
	}
	return fmt.Sprintf("%.1f/s", perSecond)
}

// size is a number of bytes for people.
func size(n int64) string {
	units, v := []string{"B", "KiB", "MiB", "GiB", "TiB", "PiB"}, float64(n)
	for v >= 1024 && len(units) > 1 {
		v, units = v/1024, units[1:]
	}
	return strings.TrimSuffix(fmt.Sprintf("%.1f", v), ".0") + " " + units[0]
}

// length is a number of seconds for people; nil is not known.
func length(seconds any) string {
	switch s := seconds.(type) {
	case float64:
		d := time.Duration(s * float64(time.Second)).Round(time.Second)
		const day = 24 * time.Hour
		if d >= 2*day {
			return fmt.Sprintf("%d days", d/day)
		}
		return d.String()
	case *float64:
		if s != nil {
			return length(*s)
		}
	}
	return "–"
}

// The scripts are htmx as npm has it (see static/SHA256SUMS), and our own. No page loads a script
// from anywhere else, and none has one inline.
//
// They are small by two counts, each of at most 60 KB, which cmd/browser measures: what any one page
// runs (Live the most: htmx with its extension), and all of them as they are transferred. Each page
// loads those alone that it needs; most load one of 4 KB, or none.
//
//go:embed static/*.js
var scriptFiles embed.FS

// scriptsPath is followed by a hash of all scripts and the name of one, so that a browser may keep
// it for ever, and a script can import another by its name.
const scriptsPath = "/static/"

var scriptsHash = sync.OnceValue(func() string {
	all := sha256.New()
	names, _ := fs.Glob(scriptFiles, "static/*.js") // the pattern is a good one
	for _, name := range names {
		text, _ := scriptFiles.ReadFile(name) // an embedded file can be read
		_, _ = fmt.Fprintf(all, "%s %d\n%s", name, len(text), text)
	}
	return hex.EncodeToString(all.Sum(nil))[:16]
})

// scriptPath is where a page finds a script. It is a function of the templates.
func scriptPath(name string) (string, error) {
	if _, err := fs.Stat(scriptFiles, "static/"+name); err != nil {
		return "", fmt.Errorf("there is no script %q", name)
	}
	return scriptsPath + scriptsHash() + "/" + name, nil
}

var serveScript = gzhttp.GzipHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
	if at, err := scriptPath(r.PathValue("name")); err != nil || r.URL.Path != at {
		http.Error(w, "there is no such script", http.StatusNotFound)
		return
	}
	w.Header().Set("Content-Type", "text/javascript; charset=utf-8")
	w.Header().Set("Cache-Control", "public, max-age=31536000, immutable")
	http.ServeFileFS(w, r, scriptFiles, "static/"+r.PathValue("name"))
}))
