package web

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"html/template"
	"net/http"

	"github.com/auditrelay/auditrelay/internal/control/access"
	"github.com/auditrelay/auditrelay/internal/control/console"
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
