package web

import (
	"errors"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/auditrelay/auditrelay/internal/control/access"
	"github.com/auditrelay/auditrelay/internal/control/console"
	"github.com/auditrelay/auditrelay/relay"
)

// livePage has the newest events.
type livePage struct {
	Form    url.Values
	Events  []liveEvent
	Counts  console.TapCounts
	Refresh int // seconds until the events are loaded again; 0: they are not
	Address string
	Veiled  bool
	Sinks   []string
	Error   string
}

// Value is what a field has.
func (p livePage) Value(name string) string { return p.Form.Get(name) }

// Intervals are the seconds to choose from.
func (p livePage) Intervals() []int { return []int{2, 5, 10, 30} }

type liveEvent struct {
	relay.Event
	Text string
}

const (
	liveShown = 50
	// longestEvent bounds what is shown of a body, in bytes.
	longestEvent = 4 << 10
)

// liveOf samples the events: it shows the newest, however many pass.
func liveOf(a *asked) (any, error) {
	p := livePage{Form: a.request.Form, Veiled: a.role < access.Auditor, Address: a.request.URL.RequestURI()}
	if n, err := strconv.Atoi(a.value("every")); err == nil && n > 0 {
		p.Refresh = min(max(n, 2), 60)
	}
	sinks, err := a.client.Sinks(a.ctx)
	if err != nil {
		return nil, err
	}
	for _, s := range sinks {
		if s.Configured {
			p.Sinks = append(p.Sinks, s.Name)
		}
	}
	req := console.Tap{Sink: a.value("sink"), Match: a.value("match"), Veiled: p.Veiled, Newest: liveShown}
	err = a.client.Tap(a.ctx, req, func(t *console.Tapped) error {
		e, err := t.Event()
		if err != nil {
			return err
		}
		p.Events = append(p.Events, liveEvent{e, cut(strings.ToValidUTF8(string(e.Body), "�"), longestEvent)})
		return nil
	}, func(c *console.TapCounts) { p.Counts = *c })
	if errors.Is(err, console.ErrRequest) {
		p.Error, err = err.Error(), nil
	}
	slices.Reverse(p.Events)
	return p, err
}

// sessionsOf are the people who are logged in.
func sessionsOf(a *asked) (any, error) { return a.client.Sessions(a.ctx) }

func planRevoke(a *asked) (plan, error) {
	list, err := a.client.Sessions(a.ctx)
	p := plan{Head: []string{"Person", "Role", "Last used"}, Says: []string{"The person would be logged out now, and may log in again."}}
	for _, s := range list {
		if s.ID == a.value("session") {
			p.Rows, p.Button = append(p.Rows, []string{s.Person.String(), s.Role.String(), stampOf(s.Seen)}), "Log out"
		}
	}
	return p, err
}

func doRevoke(a *asked) (done, error) {
	was, err := a.client.RevokeSession(a.ctx, console.RevokeSession{ID: a.value("session")})
	if err != nil {
		return done{}, err
	}
	return done{was[0].Person.String() + " is logged out.", "/sessions"}, nil
}
