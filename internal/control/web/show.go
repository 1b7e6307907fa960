package web

import (
	"bytes"
	"cmp"
	"html/template"
	"net/http"

	"github.com/auditrelay/auditrelay/internal/control/access"
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
		const limit = 1 << 20
		r.Body = http.MaxBytesReader(w, r.Body, limit)
		a := &asked{ctx: r.Context(), request: r, opts: &c.opts}
		visitor, in := of(r)
		if !in {
			c.opts.Access.Ask(w, r)
			return
		}
		a.person, a.role = visitor.Person, visitor.Role
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
		c.render(w, a, http.StatusOK, p.file, shown{Title: p.title, Path: cmp.Or(p.under, p.path), Notice: takeNotice(w, a.request), Data: data})
		return nil
	}
}

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

// write writes a whole answer.
func write(w http.ResponseWriter, status int, media string, body []byte) {
	w.Header().Set("Content-Type", media)
	w.WriteHeader(status)
	_, _ = w.Write(body) // the browser has gone
}
