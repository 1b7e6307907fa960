package disk

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/internal/store"
)

// ledger is a table under test, with the newest value of each key.
type ledger struct {
	*model
	newest map[string]string
}

func newLedger(t *testing.T, seed uint64) *ledger {
	return &ledger{newModel(t, seed), map[string]string{}}
}

func (l *ledger) put(key string) {
	value := fmt.Sprint(l.rng.Uint64())
	_, err := l.store.table.Put(context.Background(), key, []byte(value), store.If{})
	require.NoError(l, err, "seed %d", l.seed)
	l.newest[key] = value
}

func (l *ledger) puts(n int) {
	for range n {
		l.put(fmt.Sprintf("k%d", l.rng.IntN(8)))
	}
}

func (l *ledger) get(key string) store.Value {
	got, err := l.store.table.Get(context.Background(), key)
	require.NoError(l, err)
	return got
}

const (
	valuesA, valuesB, lazyValues = "/s/values.a", "/s/values.b", "/s/lazy"
)

func (m *memFS) set(path string, b []byte) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if b == nil {
		delete(m.names, path)
		return
	}
	m.names[path] = &inode{cache: b, disk: append([]byte{}, b...), dirty: map[int]bool{}}
	m.onDisk[path] = m.names[path]
}

// lives plays a table through puts, starts and puts that failed. It returns the files as they
// were somewhere in between.
func (l *ledger) lives() (earlier map[string][]byte) {
	for life := range 1 + l.rng.IntN(3) {
		l.puts(l.rng.IntN(20))
		if life == 0 {
			earlier = l.fs.snapshot()
		}
		if l.rng.IntN(3) == 0 {
			require.NoError(l, l.store.table.turn.lock(l.Context()))
			l.store.table.durable.stale = true // as after a failed put
			l.store.table.turn.unlock()
		}
		l.leave()
		l.open()
	}
	l.puts(l.rng.IntN(20))
	return earlier
}

// One fault in the files of the durable values costs none of them, and calls none doubtful.
func TestOneFaultCostsNoValue(t *testing.T) {
	t.Parallel()
	for seed := range uint64(300) {
		l := newLedger(t, seed)
		earlier := l.lives()
		l.leave()
		path := []string{valuesA, valuesB, lazyValues}[l.rng.IntN(3)]
		what := l.fs.harmFile(l.rng, path, earlier)
		for range 2 {
			l.open()
			for key, want := range l.newest {
				got := l.get(key)
				require.Equal(t, want, string(got.Data), "%s after %s; seed %d", key, what, seed)
				require.False(t, got.Doubtful, "%s after %s; seed %d", key, what, seed)
			}
			require.False(t, l.get("never written").Doubtful, "after %s; seed %d", what, seed)
			l.puts(3)
			l.leave()
		}
	}
}

// Faults in both files never make a value older, or take it away, without its being called
// doubtful, and leave what can be read. The doubt outlives starts, and ends with the next put.
func TestALostValueIsDoubtful(t *testing.T) {
	t.Parallel()
	lost, kept := 0, 0
	for seed := range uint64(300) {
		l := newLedger(t, seed)
		earlier := l.lives()
		l.leave()
		what := l.fs.harmFile(l.rng, valuesA, earlier) + ", " + l.fs.harmFile(l.rng, valuesB, earlier)
		if l.rng.IntN(3) == 0 {
			now := l.fs.snapshot()
			from := l.rng.IntN(len(now[valuesA]) + 1) // the same place in both
			what = fmt.Sprintf("both were cut at %d", from)
			for _, path := range []string{valuesA, valuesB} {
				l.fs.set(path, append([]byte{}, now[path][:min(from, len(now[path]))]...))
			}
		}
		var doubtful []string
		for life := range 3 {
			l.open()
			for key, want := range l.newest {
				got := l.get(key)
				require.True(t, got.Doubtful || string(got.Data) == want, "%s is %q after %s; seed %d, life %d", key, got.Data, what, seed, life)
				if got.Doubtful && life == 0 {
					doubtful = append(doubtful, key)
					if string(got.Data) == want {
						kept++
					}
				}
			}
			for _, key := range doubtful {
				require.True(t, l.get(key).Doubtful, "a start does not end the doubt")
			}
			l.leave()
		}
		l.open()
		for _, key := range doubtful {
			lost++
			l.put(key)
			require.False(t, l.get(key).Doubtful)
		}
		l.leave()
		l.open()
		for key, want := range l.newest {
			got := l.get(key)
			require.False(t, got.Doubtful)
			require.Equal(t, want, string(got.Data))
		}
		l.leave()
	}
	require.Greater(t, lost, 100, "the faults do harm")
	require.Greater(t, kept, 200, "what can be read is not thrown away")
}

// Older copies of both files bring an older value back, such as a credential that was revoked
// since. It is called doubtful, and so is the absence of one that was written since.
func TestOlderFilesAreNoticed(t *testing.T) {
	t.Parallel()
	for i := range 4 {
		rewritten, withMark := i%2 > 0, i > 1
		l := newLedger(t, 1)
		l.put("revoked")
		l.put("same")
		earlier := l.fs.snapshot()
		l.put("revoked")
		l.put("new")
		l.store.table.durable.stale = rewritten
		if rewritten {
			l.put("new")
		}
		l.leave()
		l.open() // a start that writes nothing knows as much as one that does
		l.append()
		l.leave()
		later := l.fs.snapshot()
		l.fs.set(valuesA, earlier[valuesA])
		l.fs.set(valuesB, earlier[valuesB])
		if withMark { // the log's own knows better
			l.fs.set(lazyValues, earlier[lazyValues])
		}
		l.open()
		for _, key := range []string{"revoked", "same", "new", "any other"} {
			assert.True(t, l.get(key).Doubtful, key)
		}
		l.put("revoked")
		l.leave()

		// The file that was there before is older than what was put since.
		l.fs.set(valuesB, later[valuesB])
		l.open()
		got := l.get("revoked")
		assert.Equal(t, l.newest["revoked"], string(got.Data))
		assert.False(t, got.Doubtful)
		all, err := l.store.table.List(t.Context(), "")
		require.NoError(t, err)
		for _, v := range all {
			if v.Key == toldPrefix+"events" {
				continue
			}
			assert.Equal(t, v.Key != "revoked", v.Doubtful, v.Key)
		}
		l.leave()
	}
}

// A full disk keeps no store from being opened, whatever its table needs to be mended.
func TestAFullDiskDoesNotKeepTheTableShut(t *testing.T) {
	t.Parallel()
	l := newLedger(t, 1)
	l.puts(10)
	l.leave()
	l.fs.set(valuesA, nil)
	l.fs.failWith(func(op, path string) error {
		if path == valuesA+".new" {
			return fmt.Errorf("%s %s: the disk is full", op, path)
		}
		return nil
	})
	var err error
	l.store, err = open(Config{Dir: "/s", Salvage: "/salvage", Writer: "test", Logger: discard}, l.fs, l.boot)
	require.NoError(t, err)
	for key, want := range l.newest {
		assert.Equal(t, want, string(l.get(key).Data))
	}
	_, err = l.store.table.Put(t.Context(), "k", nil, store.If{})
	require.ErrorContains(t, err, "the disk is full")
	l.fs.failWith(nil)
	l.put("k")
	l.leave()
}

// harmFile is harm, of a file of the caller's choice.
func (m *memFS) harmFile(rng *rand.Rand, path string, earlier map[string][]byte) string {
	return m.harmAt(rng, path, m.files("/s/"), earlier)
}
