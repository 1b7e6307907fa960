package deadletters

import (
	"context"
	"iter"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/internal/journal"
	"github.com/auditrelay/auditrelay/internal/store"
	"github.com/auditrelay/auditrelay/internal/store/cluster"
	"github.com/auditrelay/auditrelay/internal/testbed/natstest"
	"github.com/auditrelay/auditrelay/internal/testbed/waiting"
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

// lagging is the store of a relay whose index hears of nothing more for a while.
type lagging struct {
	store.Store
	held  sync.RWMutex // locked meanwhile
	asked atomic.Int64 // how often it asked for the log's end
}

func (g *lagging) Log(ctx context.Context, name string, o store.Options) (store.Log, error) {
	l, err := g.Store.Log(ctx, name, o)
	return &laggingLog{l, g}, err
}

type laggingLog struct {
	store.Log
	of *lagging
}

func (l *laggingLog) State(ctx context.Context) (store.State, error) {
	l.of.asked.Add(1)
	return l.Log.State(ctx)
}

func (l *laggingLog) Read(ctx context.Context, from store.Pos, follow bool) iter.Seq2[store.Item, error] {
	return func(yield func(store.Item, error) bool) {
		for item, err := range l.Log.Read(ctx, from, follow) {
			if follow {
				l.of.held.RLock()
				l.of.held.RUnlock() //nolint:staticcheck // it only waits
			}
			if !yield(item, err) {
				return
			}
		}
	}
}

// A relay reads letters while another one tidies up, and has not heard of that yet. It takes none of
// them for lost, so that it never drops what the other one has appended again.
func TestTwoRelaysTidyUp(t *testing.T) {
	t.Parallel()
	url := natstest.Run(t, t.TempDir()).ClientURL()
	late := &lagging{}
	one := ofRelay(t, url, func(s store.Store) store.Store { return s })
	other := ofRelay(t, url, func(s store.Store) store.Store { late.Store = s; return late })
	events := relaytest.Events(3)
	require.NoError(t, one.Reject(t.Context(), "k", refused(events)))
	want := map[string][]uint64{events[0].ID: {1}, events[1].ID: {2}, events[2].ID: {3}}
	require.Equal(t, want, numbers(t, other))

	late.held.Lock()
	_, _, err := one.move(t.Context(), 1, 3)
	require.NoError(t, err)
	require.NoError(t, one.letters.Trim(t.Context(), one.index.oldest()))
	before := late.asked.Load()
	type found struct {
		record *store.Record
		err    error
	}
	read := make(chan found, 1)
	go func() {
		e, _ := other.index.next(1, 1, func(*entry) bool { return true })
		c := &cursor{s: other, ctx: context.Background()}
		defer c.close()
		r, err := c.record(e)
		read <- found{r, err}
	}()
	waiting.Until(t, func() bool { return len(read) > 0 || late.asked.Load() > before })
	late.held.Unlock()
	got := <-read
	require.NoError(t, got.err)
	require.NotNil(t, got.record, "it stands further on")
	assert.Equal(t, want, numbers(t, other))

	var both sync.WaitGroup
	for _, s := range []*Store{one, other} {
		both.Go(func() {
			state, err := s.catchUp(t.Context())
			assert.NoError(t, err)
			for from, more := store.Pos(1), true; more; {
				from, more, err = s.move(t.Context(), from, state.End)
				if !assert.NoError(t, err) {
					return
				}
			}
			assert.NoError(t, s.letters.Trim(t.Context(), s.index.oldest()))
		})
	}
	both.Wait()
	assert.Equal(t, want, numbers(t, one))
	assert.Equal(t, want, numbers(t, other))
}
