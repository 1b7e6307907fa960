package cluster

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/internal/store"
)

// A position that is or may have been another record's is noticed, at an append and at a
// read; answers that come in another order are not taken for that.
func TestAPositionThatIsGivenOutAgainIsNoticed(t *testing.T) {
	t.Parallel()
	var k known
	k.open(spot{10, 100}, turn{Seq: 1}, 10)
	fits := func(s spot, appended bool) bool {
		_, fits := k.see(s, turn{Seq: 1}, appended)
		return fits
	}
	assert.False(t, fits(spot{7, 70}, true), "the log was longer when it was opened")
	assert.True(t, fits(spot{7, 70}, false))
	assert.False(t, fits(spot{10, 101}, false), "the note knows another one")
	k.settle()
	assert.True(t, fits(spot{12, 120}, true))
	assert.True(t, fits(spot{11, 110}, true), "its answer came later")
	assert.True(t, fits(spot{12, 120}, false))
	assert.False(t, fits(spot{12, 121}, true))
	_, doubted := k.suspects()
	assert.Equal(t, spot{12, 120}, doubted)
	k.settle()
	assert.True(t, fits(spot{13 + ringSize, 5}, true))
	assert.False(t, fits(spot{13, 6}, true), "it is far too old to be new")
}

// Another relay begins a turn after a loss that it knows less of than this one does. A later turn, which
// begins after all known positions, ends that.
func TestATurnOfAnotherRelay(t *testing.T) {
	t.Parallel()
	var k known
	first, short, long := turn{Seq: 1}, turn{After: 10, Seq: 11, Shift: 2}, turn{After: 8, Seq: 9, Shift: 20}
	k.open(spot{10, 100}, first, 10)
	_, fits := k.see(spot{15, 150}, first, true)
	assert.True(t, fits)
	assert.False(t, k.follow(short, 10), "its positions begin with 13")
	_, fits = k.see(spot{16, 160}, first, true)
	assert.False(t, fits, "it was counted by the turn before")
	agreed, ahead := k.isAhead()
	assert.True(t, ahead)
	assert.EqualValues(t, 10, agreed)
	assert.True(t, k.follow(long, 12))
	assert.Equal(t, []spot{{10, 100}}, k.spots(30), "what is known up to 10 is as before")
	newest, _ := k.suspects()
	assert.Equal(t, spot{Pos: 28}, newest)
	_, ahead = k.isAhead()
	assert.False(t, ahead)
}

// A relay starts again, and takes over what it knew, also where another relay has begun a turn since.
func TestWhatAnEarlierProcessKnew(t *testing.T) {
	t.Parallel()
	id, dir := newID(), t.TempDir()
	n, _, err := openNote(dir, "log")
	require.NoError(t, err)
	records := []spot{{8, 80}, {9, 90}, {10, 100}}
	for _, s := range records {
		require.NoError(t, n.add(id, s))
	}
	require.NoError(t, n.add(newID(), spot{7, 70}))
	require.NoError(t, n.close())
	n, _, err = openNote(dir, "log")
	require.NoError(t, err)
	defer func() { require.NoError(t, n.close()) }()
	assert.Equal(t, records, n.spots(id))

	none, early := &meta{}, &meta{Turns: []turn{{After: 8, Seq: 9, Shift: 1}}}
	late := &meta{Turns: []turn{{After: 8, Seq: 9, Shift: 2}}}
	for _, c := range []struct {
		now     *meta
		told    store.Pos
		known   int
		doubted spot
		ahead   bool
	}{
		{none, 20, 3, spot{10, 100}, false},
		{late, 20, 1, spot{}, false},
		{early, 20, 1, spot{}, true},
	} {
		var k known
		k.open(spot{Pos: c.told}, c.now.last(), c.told)
		k.resume(records[2], n.spots(id), none, c.now)
		assert.Len(t, k.spots(c.told), c.known)
		_, doubted := k.suspects()
		assert.Equal(t, c.doubted, doubted)
		agreed, ahead := k.isAhead()
		assert.Equal(t, c.ahead, ahead)
		assert.True(t, !ahead || agreed == 8)
	}
}

// Of two notes about one position, the later one counts, in whichever slot it stands.
func TestTheLaterNoteCounts(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for i, later := range []meta{{Trimmed: 3}, {Trimmed: 4}, {Trimmed: 4, Turns: []turn{{After: 8, Seq: 9, Shift: 2}}}, {Trimmed: 5, Turns: []turn{{After: 8, Seq: 9, Shift: 2}}}} {
		n, kept, err := openNote(dir, "log")
		require.NoError(t, err)
		assert.Equal(t, i > 0, kept.Meta.Trimmed > 0)
		require.NoError(t, n.write(note{Newest: spot{Pos: 9}, Meta: later}))
		require.NoError(t, n.close())
		n, kept, err = openNote(dir, "log")
		require.NoError(t, err)
		assert.Equal(t, later, kept.Meta)
		require.NoError(t, n.close())
	}
}
