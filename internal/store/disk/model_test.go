package disk

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/auditrelay/auditrelay/internal/store"
	"github.com/auditrelay/auditrelay/internal/store/durable"
)

// model plays a store through random operations, crashes and faults, and knows what it
// must give back.
type model struct {
	*testing.T
	seed uint64
	rng  *rand.Rand
	fs   *memFS
	boot [16]byte
	opts store.Options

	store *Store
	log   store.Log

	acked    map[store.Pos][]byte
	gaps     map[store.Pos]store.Reason // of those that were found, without those of a trim
	tried    map[string]bool            // every body that was ever appended
	trimmed  store.Pos                  // positions before it may be gone
	values   map[string]string
	lazy     map[string][]string // what a lazy value may be: written since the last sync
	cuts     int                 // power cuts so far
	damaged  bool                // somebody harmed a file
	erased   bool                // and left no trace of the newest records, perhaps
	twice    bool                // and another one as well
	appended int
}

func newModel(t *testing.T, seed uint64) *model {
	m := &model{
		T: t, seed: seed, rng: rand.New(rand.NewPCG(seed, 2)), fs: newMemFS(seed), boot: [16]byte{1},
		opts:  store.Options{MaxBytes: 8 << 20, Allocate: seed%2 == 0},
		acked: map[store.Pos][]byte{}, gaps: map[store.Pos]store.Reason{}, tried: map[string]bool{}, values: map[string]string{}, lazy: map[string][]string{},
	}
	m.open()
	return m
}

func (m *model) open() {
	var err error
	m.store, err = open(Config{Dir: "/s", Salvage: "/salvage", Writer: "test", Logger: discard}, m.fs, m.boot)
	require.NoError(m, err, "seed %d", m.seed)
	m.log, err = m.store.Log(context.Background(), "events", m.opts)
	require.NoError(m, err, "seed %d", m.seed)
}

// leave ends the process without any farewell.
func (m *model) leave() { m.store.stop(); <-m.store.stopped }

func (m *model) body() []byte {
	n := m.rng.IntN(3000)
	if m.rng.IntN(20) == 0 {
		n = m.rng.IntN(200 << 10)
	}
	m.appended++
	b := fmt.Appendf(nil, "body %d ", m.appended)
	for len(b) < n {
		b = append(b, byte(m.rng.Uint32()))
	}
	m.tried[string(b)] = true
	return b
}

func (m *model) append() {
	drafts := make([]store.Draft, 1+m.rng.IntN(4))
	for i := range drafts {
		drafts[i] = store.Draft{Kind: 7, Key: "k", Data: m.body()}
	}
	first, err := m.log.Append(context.Background(), drafts...)
	if err != nil {
		return
	}
	for i, d := range drafts {
		pos := first + store.Pos(i)
		require.NotContains(m, m.acked, pos, "a position is given out once; seed %d", m.seed)
		m.acked[pos] = d.Data
	}
}

func (m *model) trim() {
	state, err := m.log.State(context.Background())
	require.NoError(m, err)
	before := state.First + store.Pos(m.rng.IntN(int(state.End-state.First+2)))
	m.trimmed = max(m.trimmed, before)
	_ = m.log.Trim(context.Background(), before)
}

func (m *model) put() {
	key, value := fmt.Sprintf("d%d", m.rng.IntN(5)), fmt.Sprint(m.rng.Uint32())
	if _, err := m.store.table.Put(context.Background(), key, []byte(value), store.If{}); err == nil {
		m.values[key] = value
	} else {
		delete(m.values, key) // perhaps one, perhaps the other
	}
}

func (m *model) putLazy() {
	key, value := fmt.Sprintf("l%d", m.rng.IntN(20)), fmt.Sprint(m.rng.Uint32())
	if err := m.store.table.PutLazy(context.Background(), key, []byte(value), store.If{}); err == nil {
		m.lazy[key] = append(m.lazy[key], value)
	} else {
		m.lazy[key] = append(m.lazy[key], value, "")
	}
}

// failOnce makes one of the next operations fail.
func (m *model) failOnce() {
	ops := []string{"write", "sync", "sync", "allocate", "syncdir", "truncate"}
	op, left := ops[m.rng.IntN(len(ops))], m.rng.IntN(4)
	cause := []error{unix.ENOSPC, unix.EIO}[m.rng.IntN(2)]
	m.fs.failWith(func(did, _ string) error {
		if did != op {
			return nil
		}
		if left--; left >= 0 {
			return nil
		}
		m.fs.fail = nil
		return cause
	})
}

// check reads everything back.
func (m *model) check() {
	m.fs.failWith(nil)
	next := store.Pos(1)
	gap := func(g *store.Gap) {
		for pos := g.From; pos <= g.To; pos++ {
			if m.acked[pos] == nil {
				if g.Why == store.Damaged && !m.damaged || g.Why == store.Doubtful && m.cuts == 0 && !m.damaged {
					require.Failf(m, "nothing is damaged without a cause", "%+v, seed %d", *g, m.seed)
				}
				m.gaps[pos] = g.Why
				continue
			}
			if g.Why == store.Trimmed {
				require.Less(m, pos, m.trimmed, "trimmed without being asked; seed %d", m.seed)
			} else {
				require.True(m, m.damaged, "acknowledged, and lost: %+v; seed %d", *g, m.seed)
				m.gaps[pos] = g.Why
			}
		}
	}
	for item, err := range m.log.Read(context.Background(), 1, false) {
		require.NoError(m, err)
		if g := item.Gap; g != nil {
			require.Equal(m, next, g.From)
			gap(g)
			next = g.To + 1
			continue
		}
		r := item.Record
		require.Empty(m, m.gaps[r.Pos], "a gap stays a gap; seed %d", m.seed)
		require.Equal(m, next, r.Pos, "seed %d", m.seed)
		require.True(m, m.tried[string(r.Data)], "a record that nobody wrote; seed %d", m.seed)
		if want := m.acked[r.Pos]; want != nil {
			require.True(m, bytes.Equal(want, r.Data), "position %d is another record; seed %d", r.Pos, m.seed)
		}
		next++
	}
	for pos := range m.acked {
		require.Less(m, pos, next, "an acknowledged record is after the end; seed %d", m.seed)
	}
	m.checkTable()
}

func (m *model) checkTable() {
	for key, want := range m.values {
		got, err := m.store.table.Get(context.Background(), key)
		require.NoError(m, err)
		require.True(m, string(got.Data) == want || got.Doubtful && m.twice, "%s is %q, and was %q; seed %d", key, got.Data, want, m.seed)
	}
	for key, may := range m.lazy {
		got, err := m.store.table.Get(context.Background(), key)
		require.NoError(m, err)
		if m.cuts == 0 && !m.damaged && !contains(may, "") {
			require.Equal(m, may[len(may)-1], string(got.Data), "a lazy value survives a kill; seed %d", m.seed)
		}
		require.True(m, got.Data == nil || contains(may, string(got.Data)), "a lazy value that nobody wrote; seed %d", m.seed)
	}
}

func contains(all []string, one string) bool {
	for _, s := range all {
		if s == one {
			return true
		}
	}
	return false
}

func (m *model) kill() {
	m.leave()
	m.fs.failWith(nil)
	m.open()
}

func (m *model) cutPower() {
	m.leave()
	m.fs.failWith(nil)
	m.fs.cutPower()
	m.boot[0]++
	m.cuts++
	m.open()
}

// TestNothingAcknowledgedIsLost plays many short lives: appends, values, trims, failed
// operations, kills and power cuts, in the middle of a start as well.
func TestNothingAcknowledgedIsLost(t *testing.T) {
	t.Parallel()
	lives := uint64(60)
	if testing.Short() {
		lives = 20
	}
	for seed := range lives {
		m := newModel(t, seed)
		for range 60 {
			switch n := m.rng.IntN(100); {
			case n < 55:
				m.append()
			case n < 65:
				m.put()
			case n < 75:
				m.putLazy()
			case n < 79:
				m.trim()
			case n < 86:
				m.failOnce()
			case n < 93:
				m.kill()
				m.check()
			case n < 97:
				m.cutPower()
				m.check()
			default:
				m.check()
			}
		}
		m.check()
		m.fs.failWith(nil)
		require.NoError(t, m.store.Close())
		m.open()
		m.check()
		m.leave()
	}
}

// snapshot copies the bytes of all files.
func (m *memFS) snapshot() map[string][]byte {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := map[string][]byte{}
	for path, n := range m.names {
		all[path] = append([]byte{}, n.cache...)
	}
	return all
}

// harm does one thing to one file, or exchanges two of them, and says what.
func (m *memFS) harm(rng *rand.Rand, earlier map[string][]byte) string {
	paths := m.files("/s/")
	one, other := paths[rng.IntN(len(paths))], paths[rng.IntN(len(paths))]
	if rng.IntN(8) > 0 {
		return m.harmAt(rng, one, paths, earlier)
	}
	now := m.snapshot()
	m.set(one, now[other])
	m.set(other, now[one])
	return one + " was exchanged with " + other
}

func (m *memFS) harmAt(rng *rand.Rand, path string, paths []string, earlier map[string][]byte) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	b := append([]byte{}, m.names[path].cache...)
	what := ""
	page := func() (from, to int) {
		p := rng.IntN((len(b) + pageSize - 1) / pageSize)
		return p * pageSize, min(len(b), (p+1)*pageSize)
	}
	switch n := rng.IntN(7); {
	case n == 0 || len(b) == 0:
		what = "removed"
		delete(m.names, path)
		return path + " was " + what
	case n == 1:
		what = "flipped"
		b[rng.IntN(len(b))] ^= 1 << rng.IntN(8)
	case n == 2:
		what = "zeroed"
		from, to := page()
		clear(b[from:to])
	case n == 3:
		what = "with two pages exchanged"
		from, to := page()
		other, end := page()
		size := min(to-from, end-other)
		kept := append([]byte{}, b[from:from+size]...)
		copy(b[from:], b[other:other+size])
		copy(b[other:], kept)
	case n == 4:
		what = "cut"
		b = b[:rng.IntN(len(b))]
	case n == 5 && earlier[path] != nil:
		what = "put back"
		b = earlier[path]
	default:
		what = "overwritten by another"
		b = append([]byte{}, m.names[paths[rng.IntN(len(paths))]].cache...)
	}
	m.names[path] = &inode{cache: b, disk: append([]byte{}, b...), dirty: map[int]bool{}}
	m.onDisk[path] = m.names[path]
	return path + " was " + what
}

func TestASecondProcessIsKeptOut(t *testing.T) {
	t.Parallel()
	cfg := Config{Dir: t.TempDir(), Salvage: t.TempDir(), Logger: slog.New(slog.DiscardHandler)}
	s, err := Open(cfg)
	require.NoError(t, err)
	_, err = Open(cfg)
	var locked *durable.LockedError
	require.ErrorAs(t, err, &locked)
	require.Equal(t, cfg.Dir, locked.Dir)
	require.NoError(t, s.Close())
	s, err = Open(cfg)
	require.NoError(t, err)
	require.NoError(t, s.Close())
}
