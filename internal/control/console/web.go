package console

import (
	"context"
	"net/http"
	"slices"
	"time"

	"github.com/auditrelay/auditrelay/internal/control/access"
)

// Opened is a link into the console in the browser.
type Opened struct {
	// URL logs in whoever opens it first, until Until.
	URL   string    `json:"url"`
	Until time.Time `json:"until"`
}

func (s *Server) openWeb(ctx context.Context, _ none) (Opened, error) {
	if s.opts.Visitors == nil {
		return Opened{}, errNoWeb
	}
	path, until := s.opts.Visitors.Link(personOf(ctx))
	return Opened{URL: s.opts.WebURL + path, Until: until}, nil
}

// OpenWeb asks for a link into the console in the browser.
func (c *Client) OpenWeb(ctx context.Context) (opened Opened, err error) {
	return opened, c.call(ctx, "/v1/console/open", none{}, &opened)
}

// AllSessions stands for all of them in [RevokeSession].
const AllSessions = "all"

// RevokeSession asks to log people out of the console in the browser.
type RevokeSession struct {
	// ID is that of a session, or AllSessions.
	ID string `json:"id"`
}

// errNoWeb means that no console in the browser is configured.
var errNoWeb = refuse(http.StatusConflict, "this relay has no console: set console.listen in its configuration, such as 127.0.0.1:9180, and restart it")

// StoppedWork tells that a person stops a piece of work of the console in the browser.
type StoppedWork struct {
	Work  string    `json:"work"`
	Begun time.Time `json:"begun"`
	// By is who began it.
	By string `json:"begun_by"`
}

// enterStop makes an entry of its own, before the work is stopped.
func (s *Server) enterStop(ctx context.Context, req StoppedWork) (none, error) {
	return none{}, s.record(ctx, Loss{Type: "console.work_stopped", Subject: "console_work", Detail: req})
}

// EnterStop enters into the trail that a piece of work is about to be stopped.
func (c *Client) EnterStop(ctx context.Context, req StoppedWork) error {
	return c.call(ctx, "/v1/console/stop", req, &none{})
}

func (s *Server) listSessions(context.Context, none) ([]access.Session, error) {
	if s.opts.Visitors == nil {
		return nil, errNoWeb
	}
	return s.opts.Visitors.Sessions(), nil
}

// loggedOut is the Detail of an entry.
type loggedOut struct {
	Sessions []access.Session `json:"sessions"`
}

// revokeSession ends sessions. A crash between the two steps leaves an entry of the intent; the
// command, given again, makes another.
func (s *Server) revokeSession(ctx context.Context, req RevokeSession) ([]access.Session, error) {
	list, err := s.listSessions(ctx, none{})
	if err != nil {
		return nil, err
	}
	list = slices.DeleteFunc(list, func(o access.Session) bool { return req.ID != AllSessions && o.ID != req.ID })
	if len(list) == 0 {
		return nil, refuse(http.StatusNotFound, "nobody is logged in by a session %q; 'auditrelay console sessions list' shows all of them", req.ID)
	}
	if err := s.record(ctx, Loss{Type: "console.session_revoked", Subject: "console_sessions", Detail: loggedOut{list}}); err != nil {
		return nil, err
	}
	for _, o := range list {
		if _, err := s.opts.Visitors.Revoke(ctx, o.ID); err != nil {
			return nil, err
		}
	}
	s.opts.Logger.Warn("people were logged out of the console on request", "sessions", len(list), "person", personOf(ctx).String())
	return list, nil
}

// Sessions lists who is logged in to the console in the browser, the newest first.
func (c *Client) Sessions(ctx context.Context) (list []access.Session, err error) {
	return list, c.call(ctx, "/v1/console/sessions", none{}, &list)
}

// RevokeSession logs people out of the console in the browser, and lists their sessions.
func (c *Client) RevokeSession(ctx context.Context, req RevokeSession) (was []access.Session, err error) {
	return was, c.call(ctx, "/v1/console/sessions/revoke", req, &was)
}
