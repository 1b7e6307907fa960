package console_test

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/internal/control/console"
	"github.com/auditrelay/auditrelay/internal/journal/deadletters"
	"github.com/auditrelay/auditrelay/internal/journal/record"
	"github.com/auditrelay/auditrelay/internal/routing"
	"github.com/auditrelay/auditrelay/internal/store"
	"github.com/auditrelay/auditrelay/internal/testbed/journaltest"
	"github.com/auditrelay/auditrelay/internal/testbed/waiting"
	"github.com/auditrelay/auditrelay/internal/trail/audit"
	"github.com/auditrelay/auditrelay/internal/workspace"
	"github.com/auditrelay/auditrelay/relay"
	"github.com/auditrelay/auditrelay/relay/relaytest"
)

// stage is a console over a real journal, with sinks in memory.
type stage struct {
	*console.Client
	t       *testing.T
	dir     string
	store   store.Store
	journal *journaltest.Journal
	dead    *deadletters.Store
	sinks   map[string]*relaytest.Sink // by name, for replays
	trail   *audit.Trail
	losses  []console.Loss
	lost    error // answer to recording a loss
	server  *console.Server
	stop    func()
}

func newStage(t *testing.T, names ...string) *stage {
	t.Helper()
	dir, log := t.TempDir(), slog.New(slog.DiscardHandler)
	cfg := config.Journal{StreamPrefix: "TEST", MaxBytes: 4 << 20, ReplayWindow: time.Hour, Replicas: 1}
	j := journaltest.Open(t, dir, cfg, journaltest.Options{})
	dead, err := deadletters.Open(t.Context(), deadletters.Options{Store: j.Store, Quarantine: j.Quarantine, Logger: log, Registerer: prometheus.NewRegistry()})
	require.NoError(t, err)
	s := &stage{Client: console.NewClient(dir), t: t, dir: dir, store: j.Store, journal: j, dead: dead, sinks: map[string]*relaytest.Sink{}}
	s.Person = workspace.Person{User: "Ada & Co.", Host: "höst"}
	var sinks []config.Sink
	for _, name := range names {
		s.sinks[name] = &relaytest.Sink{}
		sinks = append(sinks, config.Sink{Name: name, BatchEvents: 10, BatchBytes: 1 << 20, Timeout: 5 * time.Second})
	}
	options := console.Options{
		Journal: j.Set, Quarantine: j.Quarantine, Letters: dead, Sinks: func() []config.Sink { return sinks }, Logger: log,
		Route: func(config.Sink) (*routing.Route, error) {
			return routing.New(&config.Match{Types: []string{"event_log*"}}, &config.Redact{Remove: []string{"/email"}, Labels: []string{"ip"}}, routing.Options{Logger: log})
		},
		Delivery: func(string) relay.Delivery { return relay.Delivery{Events: 7} },
		Open:     func(c config.Sink) (relay.Sink, error) { return lent{s.sinks[c.Name]}, nil },
		Record:   func(_ context.Context, l console.Loss) error { s.losses = append(s.losses, l); return s.lost },
	}
	closeTrail := s.withTrail(&options)
	server, err := console.Listen(t.Context(), dir, options, func(err error) { t.Error(err) })
	require.NoError(t, err)
	s.server = server
	s.stop = sync.OnceFunc(func() {
		ctx, cancel := context.WithTimeout(context.Background(), waiting.Stall)
		defer cancel()
		assert.NoError(t, server.Close(ctx))
		closeTrail()
		assert.NoError(t, dead.Close())
		j.Shut()
	})
	t.Cleanup(s.stop)
	return s
}

// lent is a sink for several opens.
type lent struct{ relay.Sink }

func (lent) Close() error { return nil }

// push appends events, each as a record of its own.
func (s *stage) push(events []relay.Event) {
	s.t.Helper()
	for i := range events {
		var b record.Batch
		b.AddEvent(&events[i])
		require.NoError(s.t, s.journal.Append(s.t.Context(), &b))
	}
}

func (s *stage) reject(sink, reason string, attempts int, events ...relay.Event) {
	s.t.Helper()
	for i := range events {
		require.NoError(s.t, s.dead.Reject(s.t.Context(), sink, []relay.Rejection{{Event: events[i], Reason: reason, Attempts: attempts}}))
	}
}

func (s *stage) letters(filter deadletters.Filter, bodies bool) []console.Letter {
	s.t.Helper()
	var out []console.Letter
	require.NoError(s.t, s.Letters(s.t.Context(), console.ListLetters{Filter: filter, Bodies: bodies},
		func(l *console.Letter) error { out = append(out, *l); return nil }))
	return out
}

// replayed replays letters and returns the last report.
func (s *stage) replayed(req console.ReplayLetters) (p console.Progress, err error) {
	err = s.ReplayLetters(s.t.Context(), req, func(now *console.Progress) { p = *now })
	return p, err
}

func (s *stage) spanned(req console.ReplaySpan) (p console.Progress, err error) {
	err = s.ReplaySpan(s.t.Context(), req, func(now *console.Progress) { p = *now })
	return p, err
}

func idsOf[E any](list []E, id func(*E) string) []string {
	out := make([]string, len(list))
	for i := range list {
		out[i] = id(&list[i])
	}
	return out
}

func eventIDs(events []relay.Event) []string {
	return idsOf(events, func(e *relay.Event) string { return e.ID })
}

func letterIDs(letters []console.Letter) []string {
	return idsOf(letters, func(l *console.Letter) string { return l.ID })
}

// busy is a temporary error.
var busy = relaytest.Outcome{Err: errors.New("the destination is down")}
