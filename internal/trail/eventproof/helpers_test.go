package eventproof

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/internal/journal"
	"github.com/auditrelay/auditrelay/internal/journal/record"
	"github.com/auditrelay/auditrelay/internal/testbed/journaltest"
	"github.com/auditrelay/auditrelay/internal/trail/audit"
	"github.com/auditrelay/auditrelay/internal/trail/proof"
	"github.com/auditrelay/auditrelay/relay"
)

// scene is a journal and a trail on an embedded server, and a keeper. Its keeper does not
// run by itself: the tests take its steps.
type scene struct {
	*Keeper
	t     *testing.T
	dir   string
	files *journaltest.Journal
	had   int // events made
}

// spanEvents end a span in these tests.
const spanEvents = 100

func open(t *testing.T, dir string) *scene {
	t.Helper()
	return openOn(t, dir, "")
}

// openOn opens them on an external server.
func openOn(t *testing.T, dir, url string) *scene {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	cfg := config.Journal{StreamPrefix: "TEST", MaxBytes: 4 << 20, ReplayWindow: time.Hour, Replicas: 1, URL: url}
	s := &scene{t: t, dir: dir, Keeper: New(Options{Interval: time.Hour, Events: spanEvents, Logger: log})}
	var err error
	s.files = journaltest.Open(t, dir, cfg, journaltest.Options{})
	s.journal = s.files.Journal
	s.journal.Seal(s.Note)
	s.trail, err = audit.Open(t.Context(), s.files.Store, audit.Options{KeySource: audit.KeySource{Origin: "example.com/trail", KeyFile: filepath.Join(dir, "audit.key")}, SignEvery: time.Hour, Logger: log})
	require.NoError(t, err)
	require.NoError(t, s.resume(t.Context()))
	require.NoError(t, s.take(t.Context()))
	require.NoError(t, s.reach(t.Context(), s.newest+1))
	return s
}

func (s *scene) shut() {
	s.t.Helper()
	require.NoError(s.t, s.trail.Close(context.WithoutCancel(s.t.Context())))
	s.files.Shut()
}

// events makes n events of a type.
func (s *scene) events(kind string, n int) (all []relay.Event) {
	received := time.Now().UTC() // a push has one
	for range n {
		s.had++
		all = append(all, relay.Event{
			ID: fmt.Sprint("event-", s.had), Source: relay.SourceOf("p", "e"), Type: kind, Project: "p", Environment: "e",
			Time: received, Received: received, ContentType: "application/json", Body: fmt.Appendf(nil, `{"n":%d}`, s.had),
		})
	}
	return all
}

// push appends n events as one record.
func (s *scene) push(kind string, n int) []relay.Event {
	s.t.Helper()
	events := s.events(kind, n)
	var b record.Batch
	for i := range events {
		b.AddEvent(&events[i])
	}
	require.NoError(s.t, s.journal.Append(s.t.Context(), &b))
	return events
}

// pushLarge appends an event that fills a segment of the store.
func (s *scene) pushLarge() {
	s.t.Helper()
	events, random := s.events("event_log.LOGIN", 1), rand.NewChaCha8([32]byte{byte(s.had)})
	events[0].Body = make([]byte, 100_000)
	_, _ = random.Read(events[0].Body)
	var b record.Batch
	b.AddEvent(&events[0])
	require.NoError(s.t, s.journal.Append(s.t.Context(), &b))
}

// end has the interval end.
func (s *scene) end() {
	s.t.Helper()
	s.due = time.Now()
	require.NoError(s.t, s.step(s.t.Context()))
}

// spans reads the spans of the trail, and checks them: without gaps, each names the one
// before, and the journal's records give its root.
func (s *scene) spans() (all []Span) {
	s.t.Helper()
	var before *Previous
	next := uint64(1)
	require.NoError(s.t, s.trail.Each(s.t.Context(), 0, func(e audit.Recorded) error {
		if e.Type != Type {
			return nil
		}
		span, err := spanOf(&e.Entry)
		require.NoError(s.t, err)
		assert.Equal(s.t, before, span.Previous)
		if span.Again == 0 {
			assert.Equal(s.t, next, span.First, "the span begins where the one before ended")
		}
		next = span.Last + 1
		before, err = previousOf(&e.Entry)
		require.NoError(s.t, err)
		all = append(all, span)
		return nil
	}))
	return all
}

// leaves are those of the records that the journal has, by the positions of a span.
func (s *scene) leaves(span Span) (leaves []tlog.Hash) {
	s.t.Helper()
	require.NoError(s.t, s.journal.Records(s.t.Context(), span.First, span.Last+1, func(position uint64, data []byte) bool {
		d, err := record.DigestOf(data)
		require.NoError(s.t, err)
		leaves = append(leaves, Leaf(position, d.Events, d.Root))
		return true
	}))
	return leaves
}

// requireRoot holds a span against the journal's records.
func (s *scene) requireRoot(span Span) {
	s.t.Helper()
	tree := proof.Edge{}.With(s.leaves(span)...)
	require.NoError(s.t, span.holds(&tree))
}

// logs are those of the journal.
func (s *scene) logs() []*journal.Journal { return []*journal.Journal{s.journal} }
