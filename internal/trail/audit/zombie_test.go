package audit

import (
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/auditrelay/auditrelay/internal/store"
	"github.com/auditrelay/auditrelay/internal/testbed/waiting"
)

// beats are the signatures of all checkpoints, in order, and how often a relay has ended its heartbeat.
func beats(t *testing.T, trail *Trail) (p Pulse, ends int) {
	t.Helper()
	err := trail.Checkpoints(t.Context(), 1, func(c Kept) error {
		p.Add(c.Signing, c.Seq)
		if c.Promised && c.Within == 0 {
			ends++
		}
		return nil
	}, func() error { return errEnd })
	require.ErrorIs(t, err, errEnd)
	return p, ends
}

// Of two relays with one trail, one is thought dead. When it stops, it does not end the heartbeat of the
// other one; and where it has signed last, and so ends it, the other one promises the next again.
func TestAHeartbeatGoesOnWhereAnotherRelayStops(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		st, _ := startStore(t, t.TempDir())
		o := testOptions(t)
		o.Heartbeat, o.Shared = time.Hour, true
		old := openTrail(t, st, o)
		appendEntries(t, old, 0, 1)
		synctest.Wait()
		trail := openTrail(t, &testStore{Store: st.Store, t: t, logs: map[string]*testLog{}}, o)
		appendEntries(t, trail, 1, 2)
		time.Sleep(time.Minute)
		require.NoError(t, old.Close(t.Context()))
		_, ends := beats(t, trail)
		require.Zero(t, ends, "the heartbeat is the other one's")

		older := openTrail(t, &testStore{Store: st.Store, t: t, logs: map[string]*testLog{}}, o)
		time.Sleep(time.Minute)
		require.NoError(t, older.Close(t.Context()))
		_, ends = beats(t, trail)
		require.Equal(t, 1, ends)
		time.Sleep(3 * time.Hour)
		p, _ := beats(t, trail)
		require.Empty(t, p.Gaps(time.Now()))
		require.Len(t, p.Gaps(time.Now().Add(3*time.Hour)), 1, "another heartbeat is promised")
	})
}

// A relay that goes on while another one has rotated the key adds nothing to the old generation's tree,
// nor to the log.
func TestAnotherRelaysGenerationIsNoPartOfTheTree(t *testing.T) {
	t.Parallel()
	st, _ := startStore(t, t.TempDir())
	o := testOptions(t)
	old := openTrail(t, st, o)
	appendEntries(t, old, 0, 3)
	waitSigned(t, old, 3)
	trail := openTrail(t, &testStore{Store: st.Store, t: t, logs: map[string]*testLog{}}, o)
	_, err := trail.Rotate(t.Context(), Person{})
	require.NoError(t, err)
	before := records(t, st, EntriesLog)
	_, err = old.Append(t.Context(), testEntry(4))
	require.ErrorIs(t, err, ErrUnavailable)
	require.ErrorIs(t, old.Sign(t.Context()), ErrUnavailable)
	require.Equal(t, before, records(t, st, EntriesLog))
	require.NoError(t, trail.Sign(t.Context()))
	requireWhole(t, trail, int64(len(before)))
	require.Len(t, trail.Generations(), 2)
}

// Another relay appends while a generation is begun. Its first entry has the index in its name.
func TestAGenerationBeginsWhereItsNameSays(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		st, _ := startStore(t, t.TempDir())
		o := testOptions(t)
		trail := openTrail(t, st, o)
		appendEntries(t, trail, 0, 3)
		require.NoError(t, trail.Close(t.Context()))
		require.NoError(t, os.Remove(o.KeyFile))
		log := st.log(EntriesLog)
		entry, another := *records(t, st, EntriesLog)[0], true
		log.failing = func() error {
			if another {
				another = false
				_, err := log.now().Append(t.Context(), store.Draft{Kind: entry.Kind, Key: entry.Key, Data: entry.Data})
				require.NoError(t, err)
			}
			return nil
		}
		trail = openTrail(t, st, o)
		time.Sleep(2 * retryPause) // it was refused, and is tried again
		generations := trail.Generations()
		require.Len(t, generations, 2)
		first, err := trail.Get(t.Context(), generations[1].Base)
		require.NoError(t, err)
		require.Equal(t, TypeGeneration, first.Type)
		require.EqualValues(t, 4, first.Index)
		requireWhole(t, trail, 5)
	})
}

// Nobody hears that the first entry of a generation is stored. The generation is not begun once more.
func TestAGenerationWhoseAnswerIsLostIsBegunOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		st, _ := startStore(t, t.TempDir())
		o := testOptions(t)
		trail := openTrail(t, st, o)
		appendEntries(t, trail, 0, 3)
		require.NoError(t, trail.Close(t.Context()))
		require.NoError(t, os.Remove(o.KeyFile))
		st.log(EntriesLog).loseAnswers(1)
		trail = openTrail(t, st, o)
		time.Sleep(2 * retryPause)
		require.Len(t, trail.Generations(), 2)
		requireWhole(t, trail, 4)
	})
}

// An entry that another relay has appended has its place, without a reading of the whole trail.
func TestThePlaceOfAnotherRelaysEntry(t *testing.T) {
	t.Parallel()
	st, _ := startStore(t, t.TempDir())
	o := testOptions(t)
	trail := openTrail(t, st, o)
	other := openTrail(t, &testStore{Store: st.Store, t: t, logs: map[string]*testLog{}}, o)
	appendEntries(t, other, 0, 5)
	before := st.log(CheckpointsLog).count()
	requirePlaces(t, trail, []int64{3, 4, 0}, 0, leavesOf(t, other, 0))
	require.Equal(t, before, st.log(CheckpointsLog).count())
}

// An entry that was altered since it was read back has no place: the root up to it would be another one.
func TestAnEntryThatWasAlteredHasNoPlace(t *testing.T) {
	t.Parallel()
	st, _ := startStore(t, t.TempDir())
	trail := openTrail(t, st, testOptions(t))
	appendEntries(t, trail, 0, 5)
	waitSigned(t, trail, 5)
	altered := records(t, st, EntriesLog)
	alter(altered[3])
	replace(t, st, EntriesLog, altered, 0)
	e, err := trail.Get(t.Context(), 3)
	require.NoError(t, err)
	_, err = trail.Place(t.Context(), e)
	require.ErrorIs(t, err, ErrDamaged)
	require.NoError(t, trail.Sign(t.Context())) // reads the trail back
	e, err = trail.Get(t.Context(), 3)
	require.NoError(t, err)
	place, err := trail.Place(t.Context(), e)
	require.NoError(t, err)
	require.Nil(t, place.Root)
}

// Of a group of 256 entries the first hundred arrive, nobody hears of it, and another relay's entries come
// next. Each entry is in the trail once, under the index that its caller was told; and after a crash there,
// the next start goes on with those that had arrived.
func TestAGroupArrivesInPart(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		st, _ := startStore(t, t.TempDir())
		o := testOptions(t)
		o.Shared = true
		trail := openTrail(t, st, o)
		others := &testStore{Store: st.Store, t: t, logs: map[string]*testLog{}}
		appendEntries(t, trail, 0, 1)
		synctest.Wait() // the key has signed, and both relays know it
		other := openTrail(t, others, o)
		require.NoError(t, trail.lock(t.Context())) // so that they wait
		indexes := make(chan [2]int64, groupEntries)
		for i := range groupEntries {
			go func() {
				e := testEntry(1000 + i)
				index, err := trail.Append(t.Context(), e)
				assert.NoError(t, err)
				indexes <- [2]int64{e.Time.Unix(), index}
			}()
		}
		synctest.Wait()
		log := st.log(EntriesLog)
		tries, inPart, goOn := 0, make(chan struct{}), make(chan struct{})
		log.failing = func() error {
			if tries++; tries == 2 {
				close(inPart)
				select {
				case <-goOn:
				case <-t.Context().Done(): // the test has failed
				}
			}
			return nil
		}
		log.mu.Lock()
		log.prefix = 100
		log.mu.Unlock()
		trail.unlock()
		<-inPart
		appendAt(t, other, 2)
		requireWhole(t, openTrail(t, others, o), 103) // as after a crash here
		close(goOn)
		for range groupEntries {
			told := <-indexes
			e, err := trail.Get(t.Context(), told[1])
			require.NoError(t, err)
			require.Equal(t, told[0], e.Time.Unix())
		}
		require.GreaterOrEqual(t, tries, 3, "the one after the other relay's entries is refused")
		require.NoError(t, trail.Sign(t.Context()))
		requireWhole(t, trail, 1+groupEntries+2)
		requireWhole(t, other, 1+groupEntries+2)
	})
}

// Nobody hears that two entries are stored, and the first one cannot be read by then. Each is in the trail
// once, except for the lost one, which comes again.
func TestAGroupIsDamagedAndItsAnswerLost(t *testing.T) {
	t.Parallel()
	st, _ := startStore(t, t.TempDir())
	o := testOptions(t)
	o.SignEvery = time.Hour
	trail := openTrail(t, st, o)
	log := st.log(EntriesLog)
	require.NoError(t, trail.lock(t.Context()))
	log.lost = map[store.Pos]bool{1: true}
	log.loseAnswers(1)
	var group []*addition
	for i := range 2 {
		a, err := trail.addition(testEntry(i), anyEntry)
		require.NoError(t, err)
		group = append(group, a)
	}
	trail.additions <- group[0]
	waiting.Until(t, func() bool { return len(trail.additions) == 0 }) // it waits for the turn
	trail.additions <- group[1]
	trail.unlock()
	for _, a := range group {
		<-a.done
		require.NoError(t, a.err)
	}
	require.EqualValues(t, 1, group[1].index)
	var leaves []tlog.Hash
	require.NoError(t, trail.Each(t.Context(), 0, func(e Recorded) error {
		if !e.isOwn() {
			leaves = append(leaves, e.Leaf)
		}
		return nil
	}))
	require.Equal(t, []tlog.Hash{group[1].leaf, group[0].leaf}, leaves)
}
