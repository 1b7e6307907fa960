package deadletters

import (
	"context"
	"log/slog"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/internal/journal"
	"github.com/auditrelay/auditrelay/internal/store"
	"github.com/auditrelay/auditrelay/internal/store/cluster"
	"github.com/auditrelay/auditrelay/internal/testbed/natstest"
	"github.com/auditrelay/auditrelay/relay"
	"github.com/auditrelay/auditrelay/relay/relaytest"
)

// freezing is the store of a relay that is frozen right before its next append.
type freezing struct {
	store.Store
	frozen, goesOn chan struct{}
}

func (f *freezing) Log(ctx context.Context, name string, o store.Options) (store.Log, error) {
	l, err := f.Store.Log(ctx, name, o)
	return &freezingLog{l, f}, err
}

type freezingLog struct {
	store.Log
	of *freezing
}

func (l *freezingLog) freeze() {
	select {
	case <-l.of.frozen:
	default:
		close(l.of.frozen)
		<-l.of.goesOn
	}
}

func (l *freezingLog) Append(ctx context.Context, drafts ...store.Draft) (store.Pos, error) {
	l.freeze()
	return l.Log.Append(ctx, drafts...)
}

func (l *freezingLog) AppendAt(ctx context.Context, after store.Pos, drafts ...store.Draft) (store.Pos, error) {
	l.freeze()
	return l.Log.AppendAt(ctx, after, drafts...)
}

// ofRelay opens the letters of one of several relays on a cluster.
func ofRelay(t *testing.T, url string, wrap func(store.Store) store.Store) *Store {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	opened, err := cluster.Open(t.Context(), cluster.Config{
		Journal: config.Journal{URL: url, Replicas: 1, StreamPrefix: "TEST", MaxBytes: 64 << 20},
		Dir:     t.TempDir(), Version: "test", Logger: log, Registerer: prometheus.NewRegistry(),
	})
	require.NoError(t, err)
	ledger, err := journal.OpenQuarantine(t.Context(), opened, journal.QuarantineOptions{Logger: log, Registerer: prometheus.NewRegistry()})
	require.NoError(t, err)
	s, err := Open(t.Context(), Options{Store: wrap(opened), Quarantine: ledger, Logger: log, Registerer: prometheus.NewRegistry()})
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, s.Close())
		require.NoError(t, ledger.Close())
		require.NoError(t, opened.Close())
	})
	return s
}

// twoRelays are the letters of a relay that is frozen right before its next append, and of the one
// that replaces it.
func twoRelays(t *testing.T) (frozen *Store, at *freezing, other *Store) {
	t.Helper()
	url := natstest.Run(t, t.TempDir()).ClientURL()
	at = &freezing{frozen: make(chan struct{}), goesOn: make(chan struct{})}
	frozen = ofRelay(t, url, func(s store.Store) store.Store { at.Store = s; return at })
	return frozen, at, ofRelay(t, url, func(s store.Store) store.Store { return s })
}

func refused(events []relay.Event) []relay.Rejection {
	all := make([]relay.Rejection, len(events))
	for i := range events {
		all[i] = relay.Rejection{Event: events[i], Reason: "no", Attempts: 1}
	}
	return all
}

// numbers are those of the letters, by event.
func numbers(t *testing.T, s *Store) map[string][]uint64 {
	t.Helper()
	all := map[string][]uint64{}
	require.NoError(t, s.Find(t.Context(), Filter{}, func(l Letter) bool {
		all[l.Event.ID] = append(all[l.Event.ID], l.Sequence)
		return true
	}))
	return all
}

// The letters of a relay that was frozen before it kept them come after those of the relay that has
// replaced it: each event is kept twice, under numbers of its own.
func TestLettersOfAFrozenRelayAreKeptTwice(t *testing.T) {
	t.Parallel()
	frozen, at, other := twoRelays(t)
	events := relaytest.Events(3)
	kept := make(chan error, 1)
	go func() { kept <- frozen.Reject(context.Background(), "k", refused(events)) }()
	<-at.frozen
	require.NoError(t, other.Reject(t.Context(), "k", refused(events)))
	require.NoError(t, other.Remove(t.Context(), []uint64{1}))
	close(at.goesOn)
	require.NoError(t, <-kept)
	want := map[string][]uint64{events[0].ID: {5}, events[1].ID: {2, 6}, events[2].ID: {3, 7}}
	assert.Equal(t, want, numbers(t, frozen))
	assert.Equal(t, want, numbers(t, other))
}

// A relay that was frozen while it tidied up appends no letter again that another one has removed
// meanwhile.
func TestAFrozenRelayBringsNoLetterBack(t *testing.T) {
	t.Parallel()
	frozen, at, other := twoRelays(t)
	events := relaytest.Events(3)
	require.NoError(t, other.Reject(t.Context(), "k", refused(events)))
	type moved struct {
		next store.Pos
		more bool
		err  error
	}
	tidied := make(chan moved, 1)
	go func() {
		next, more, err := frozen.move(context.Background(), 1, 3)
		tidied <- moved{next, more, err}
	}()
	<-at.frozen
	require.NoError(t, other.Remove(t.Context(), []uint64{2}))
	close(at.goesOn)
	require.Equal(t, moved{next: 1, more: true}, <-tidied, "it was refused, and has to look again")
	state, err := frozen.letters.State(t.Context())
	require.NoError(t, err)
	assert.EqualValues(t, 4, state.End, "three letters and a removal")

	next, more, err := frozen.move(t.Context(), 1, 3)
	require.NoError(t, err)
	assert.Equal(t, moved{next: 4, more: true}, moved{next, more, err})
	for _, s := range []*Store{frozen, other} {
		assert.Equal(t, map[string][]uint64{events[0].ID: {1}, events[2].ID: {3}}, numbers(t, s))
	}
}
