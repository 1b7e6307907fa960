package audit

import (
	"bytes"
	"context"
	"fmt"
	"iter"
	"log/slog"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/internal/store"
	"github.com/auditrelay/auditrelay/internal/store/disk"
)

// testStore is a store on the disk, whose logs can be harmed while they are in use.
type testStore struct {
	store.Store
	t    *testing.T
	mu   sync.Mutex
	logs map[string]*testLog // guarded by mu
}

// startStore opens a store in dir, and returns how to close it early.
func startStore(t *testing.T, dir string) (*testStore, func()) {
	t.Helper()
	opened := diskStore(t, dir)
	return &testStore{Store: opened, t: t, logs: map[string]*testLog{}}, opened.stop
}

// closing closes a store once.
type closing struct {
	*disk.Store
	stop func()
}

func diskStore(t *testing.T, dir string) closing {
	t.Helper()
	s, err := disk.Open(disk.Config{Dir: filepath.Join(dir, "store"), Salvage: filepath.Join(dir, "salvage"), Writer: "test", Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	stop := sync.OnceFunc(func() { assert.NoError(t, s.Close()) })
	t.Cleanup(stop)
	return closing{s, stop}
}

// Log implements [store.Store].
func (s *testStore) Log(ctx context.Context, name string, o store.Options) (store.Log, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if l := s.logs[name]; l != nil {
		return l, nil
	}
	l, err := s.Store.Log(ctx, name, o)
	s.logs[name] = &testLog{log: l}
	copy(s.logs[name].id.Log[:], name)
	return s.logs[name], err
}

// log gives one of the logs, to harm it.
func (s *testStore) log(name string) *testLog {
	s.t.Helper()
	_, err := s.Log(s.t.Context(), name, store.Options{})
	require.NoError(s.t, err)
	return s.logs[name]
}

// testLog is a log that can lose records and answers, and be replaced by an earlier one.
type testLog struct {
	mu      sync.Mutex
	log     store.Log          // guarded by mu
	lost    map[store.Pos]bool // guarded by mu
	prefix  int                // of the next append, so many drafts are stored, and nobody hears of it; guarded by mu
	unheard int                // so many appends are stored, and nobody hears of it; guarded by mu
	reads   int                // guarded by mu

	// Set before the log is in use, or in the trail's turn; each may be nil.
	failing  func() error    // why the next append is refused
	gate     <-chan struct{} // reads wait until it is closed
	appended func(store.Pos) // told of each append
	id       store.ID
	limit    int // of a record, as that of a cluster's server; 0 for the disk's
}

func (l *testLog) now() store.Log {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.log
}

func (l *testLog) AppendAt(ctx context.Context, after store.Pos, drafts ...store.Draft) (store.Pos, error) {
	if l.failing != nil {
		if err := l.failing(); err != nil {
			return 0, err
		}
	}
	pos, err := l.appendAt(ctx, after, drafts)
	if err == nil && l.appended != nil {
		l.appended(pos)
	}
	return pos, err
}

func (l *testLog) appendAt(ctx context.Context, after store.Pos, drafts []store.Draft) (store.Pos, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, d := range drafts {
		if l.limit > 0 && len(d.Key)+len(d.Data) > l.limit {
			return 0, store.ErrTooLarge
		}
	}
	if l.prefix > 0 {
		drafts = drafts[:l.prefix]
		l.prefix, l.unheard = 0, 1
	}
	pos, err := l.log.AppendAt(context.WithoutCancel(ctx), after, drafts...)
	if err == nil && l.unheard > 0 {
		l.unheard--
		return 0, fmt.Errorf("%w: the answer is lost", store.ErrUnknown)
	}
	return pos, err
}

func (l *testLog) Append(ctx context.Context, drafts ...store.Draft) (store.Pos, error) {
	return l.now().Append(ctx, drafts...)
}

func (l *testLog) Read(ctx context.Context, from store.Pos, follow bool) iter.Seq2[store.Item, error] {
	l.mu.Lock()
	l.reads++
	l.mu.Unlock()
	return func(yield func(store.Item, error) bool) {
		if l.gate != nil {
			select {
			case <-l.gate:
			case <-ctx.Done():
			}
		}
		for item, err := range l.now().Read(ctx, from, follow) {
			if r := item.Record; r != nil && l.isLost(r.Pos) {
				item = store.Item{Gap: &store.Gap{From: r.Pos, To: r.Pos, Why: store.Damaged}}
			}
			if !yield(item, err) {
				return
			}
		}
	}
}

func (l *testLog) isLost(pos store.Pos) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lost[pos]
}

// State implements [store.Log]. The log keeps its ID whatever replaces its records, as that of
// somebody who writes to its files does, unless it is exchanged.
func (l *testLog) State(ctx context.Context) (store.State, error) {
	s, err := l.now().State(ctx)
	s.ID = l.id
	return s, err
}

func (l *testLog) MaxRecord() int {
	if l.limit > 0 {
		return l.limit
	}
	return l.now().MaxRecord()
}

func (l *testLog) Seek(context.Context, time.Time) (store.Pos, error) { panic("not used") }
func (l *testLog) Trim(context.Context, store.Pos) error              { panic("not used") }
func (l *testLog) Scrub(context.Context) iter.Seq2[store.Gap, error]  { panic("not used") }

// loseAnswers has the next n appends stored, and nobody hears of it.
func (l *testLog) loseAnswers(n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.unheard = n
}

func (l *testLog) answersToLose() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.unheard
}

func (l *testLog) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.reads
}

// records are those of a log.
func records(t *testing.T, s *testStore, name string) (all []*store.Draft) {
	t.Helper()
	for item, err := range s.log(name).Read(t.Context(), 1, false) {
		require.NoError(t, err)
		if item.Record != nil {
			all = append(all, copyDraft(&item.Record.Draft))
		}
	}
	return all
}

func copyDraft(d *store.Draft) *store.Draft {
	return &store.Draft{Kind: d.Kind, Key: d.Key, Data: bytes.Clone(d.Data)}
}

func copyAll(drafts []*store.Draft) []*store.Draft {
	copied := make([]*store.Draft, len(drafts))
	for i, d := range drafts {
		copied[i] = copyDraft(d)
	}
	return copied
}

// replace puts other records in the place of a log's, and loses one of them.
func replace(t *testing.T, s *testStore, name string, drafts []*store.Draft, lost store.Pos) {
	t.Helper()
	l := s.log(name)
	fresh, err := diskStore(t, t.TempDir()).Log(t.Context(), name, store.Options{})
	require.NoError(t, err)
	for _, d := range drafts {
		_, err := fresh.Append(t.Context(), *d)
		require.NoError(t, err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.log, l.lost = fresh, map[store.Pos]bool{lost: true}
}
