package audit

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/internal/store"
)

// Several things go wrong at once, and more while the trail recovers: answers are lost, records rot or are cut off, and
// files next to the key are lost. Each start gives a usable trail, which has all entries that nobody has harmed; it
// names all damage, and the start after it has nothing to add.
func TestSeveralFaultsAtOnceAreNamedOnce(t *testing.T) {
	t.Parallel()
	seeds, err := strconv.ParseUint(cmp.Or(os.Getenv("AUDITRELAY_TAMPER"), "15"), 10, 64)
	require.NoError(t, err)
	for seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				f := &faults{t: t, r: rand.New(rand.NewPCG(seed, 7)), o: testOptions(t), leaves: map[int64]string{}, harmed: map[int64]bool{}}
				f.st, _ = startStore(t, t.TempDir())
				f.o.SignEvery, f.o.ForwardedFile = time.Hour, filepath.Join(t.TempDir(), "forwarded")
				defer func() { t.Log(f.done) }()
				f.open()
				defer func() { _ = f.trail.Close(t.Context()) }()
				for range 4 {
					for range f.r.IntN(4) {
						f.work()
					}
					if err := f.trail.Close(t.Context()); err != nil {
						require.ErrorIs(t, err, ErrUnavailable) // and it is not tried again so soon
					}
					for range f.r.IntN(3) {
						f.harm()
					}
					f.reopen()
				}
				require.NoError(t, f.trail.Close(t.Context()))
				reader, err := OpenReader(t.Context(), f.st)
				require.NoError(t, err)
				_, unnamed, err := VerifyOffline(t.Context(), f.o, reader)
				require.NoError(t, err)
				require.Empty(t, unnamed)
			})
		})
	}
}

// faults are a trail and what happened to it.
type faults struct {
	t      *testing.T
	r      *rand.Rand
	st     *testStore
	o      Options
	trail  *Trail
	leaves map[int64]string // of the acknowledged entries
	harmed map[int64]bool
	made   int
	done   []string
}

func (f *faults) say(format string, args ...any) {
	f.done = append(f.done, fmt.Sprintf(format, args...))
}

// open opens the trail, and hands its newest entry on.
func (f *faults) open() {
	trail, err := Open(f.t.Context(), f.st, f.o)
	require.NoError(f.t, err)
	time.Sleep(2 * retryPause) // it may be tried again
	require.NoError(f.t, trail.isOpen(f.t.Context()))
	f.trail = trail
	f.forward()
}

func (f *faults) forward() {
	e, err := f.trail.Get(f.t.Context(), f.trail.Size()-1)
	if err != nil {
		return
	}
	place, err := f.trail.Place(f.t.Context(), e)
	require.NoError(f.t, err)
	f.trail.Forwarded(place)
}

// work uses the trail, or harms it meanwhile.
func (f *faults) work() {
	switch f.r.IntN(6) {
	case 0, 1:
		for range 1 + f.r.IntN(5) {
			f.add()
		}
		f.forward()
	case 2:
		if f.r.IntN(4) == 0 {
			f.st.log(CheckpointsLog).loseAnswers(1)
		}
		require.NoError(f.t, f.trail.Sign(f.t.Context()))
		f.say("signed")
	case 3:
		_, err := f.trail.Rotate(f.t.Context(), Person{}) // where an answer is lost, it can be begun again
		f.say("rotated: %v", err)
	default:
		f.rot()
	}
}

func (f *faults) add() {
	if f.r.IntN(6) == 0 {
		f.st.log(EntriesLog).loseAnswers(1)
	}
	index, err := f.trail.Append(f.t.Context(), testEntry(f.made))
	require.NoError(f.t, err)
	require.False(f.t, f.leaves[index] != "" && !f.harmed[index], "the index %d is given twice", index)
	e, err := f.trail.Get(f.t.Context(), index)
	require.NoError(f.t, err)
	require.Equal(f.t, string(testEntry(f.made).After), string(e.After))
	f.leaves[index], f.made = e.Leaf.String(), f.made+1
	delete(f.harmed, index)
	f.say("entry %d", index)
}

// harm harms a trail that is not open.
func (f *faults) harm() {
	switch name := []string{EntriesLog, CheckpointsLog}[f.r.IntN(2)]; f.r.IntN(7) {
	case 0:
		_ = os.Remove(f.o.KeyFile)
		f.say("no key")
	case 1:
		_ = os.Remove(f.o.KeyFile + ".checkpoint")
		f.say("no pin")
	case 2:
		_ = os.Remove(f.o.ForwardedFile)
		f.say("no note")
	case 3:
		f.st.log(EntriesLog).loseAnswers(1)
		f.say("no answer")
	case 4, 5:
		f.rot()
	default:
		f.cut(name)
	}
}

func (f *faults) end(name string) (*testLog, store.Pos) {
	l := f.st.log(name)
	state, err := l.State(f.t.Context())
	require.NoError(f.t, err)
	return l, state.End
}

// rot makes a record unreadable.
func (f *faults) rot() {
	name := []string{EntriesLog, CheckpointsLog}[f.r.IntN(2)]
	l, end := f.end(name)
	if end == 0 {
		return
	}
	pos := store.Pos(1 + f.r.Int64N(int64(end)))
	l.mu.Lock()
	defer l.mu.Unlock()
	lost := maps.Clone(l.lost)
	if lost == nil {
		lost = map[store.Pos]bool{}
	}
	lost[pos] = true
	l.lost = lost
	if name == EntriesLog {
		f.harmed[int64(pos)-1] = true
	}
	f.say("%s rots at %d", name, pos)
}

// cut puts a log back to an earlier end.
func (f *faults) cut(name string) {
	l, end := f.end(name)
	if end == 0 {
		return
	}
	left := store.Pos(f.r.Int64N(int64(end)))
	fresh, err := diskStore(f.t, f.t.TempDir()).Log(f.t.Context(), name, store.Options{})
	require.NoError(f.t, err)
	for item, err := range l.now().Read(f.t.Context(), 1, false) {
		require.NoError(f.t, err)
		if item.Record.Pos > left {
			break
		}
		_, err = fresh.Append(f.t.Context(), *copyDraft(&item.Record.Draft))
		require.NoError(f.t, err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	lost := map[store.Pos]bool{}
	for old := range l.lost {
		lost[old] = old <= left
	}
	l.log, l.lost = fresh, lost
	for pos := left; pos < end && name == EntriesLog; pos++ {
		f.harmed[int64(pos)] = true
	}
	f.say("%s is cut to %d of %d", name, left, end)
}

// reopen starts twice.
func (f *faults) reopen() {
	f.open()
	for index, leaf := range f.leaves {
		if f.harmed[index] {
			continue
		}
		e, err := f.trail.Get(f.t.Context(), index)
		require.NoError(f.t, err)
		require.Equal(f.t, leaf, e.Leaf.String(), "entry %d", index)
	}
	size := f.trail.Size()
	f.say("opened with %d entries in %d generations", size, len(f.trail.Generations()))
	require.NoError(f.t, f.trail.Close(f.t.Context()))
	f.open()
	last, _ := f.trail.Get(f.t.Context(), f.trail.Size()-1)
	require.Equal(f.t, size, f.trail.Size(), "%s %s", last.Type, last.Detail)
}
