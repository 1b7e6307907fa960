package web

import (
	"context"
	"errors"
	"net/http"

	"github.com/auditrelay/auditrelay/internal/control/access"
	"github.com/auditrelay/auditrelay/internal/control/console"
)

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
