package cluster

import (
	"encoding/json"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/internal/store"
)

// A stream that loses its end, is trimmed and is replaced in every order: no position is
// given out twice, and each is a record, or is named.
func TestPositionsOverManyLosses(t *testing.T) {
	t.Parallel()
	for seed := range uint64(300) {
		random := rand.New(rand.NewPCG(seed, 1))
		m := &meta{}
		stream := map[uint64]store.Pos{} // sequence to the position it was acknowledged at
		lastSeq, end := uint64(0), store.Pos(0)
		stale := map[uint64]bool{} // messages that nobody acknowledged
		given := map[store.Pos]bool{}
		for range 40 {
			switch random.IntN(5) {
			default:
				for range random.IntN(8) {
					lastSeq++
					pos, ok := m.pos(lastSeq)
					require.True(t, ok)
					require.Equal(t, end+1, pos, "positions follow one another")
					require.False(t, given[pos])
					given[pos], end, stream[lastSeq] = true, pos, pos
				}
			case 3: // the newest are lost, and some others stored before that is noticed
				lost := uint64(random.IntN(6))
				stays := lastSeq - min(lost, lastSeq)
				after := m.reach(stays)
				for seq := stays + 1; seq <= lastSeq; seq++ {
					delete(stream, seq)
					delete(stale, seq)
				}
				if stays == lastSeq {
					continue
				}
				for lastSeq = stays; random.IntN(2) == 0; {
					lastSeq++
				}
				first := m.after(after)
				require.LessOrEqual(t, first, stays+1)
				m.rewind(after, max(end, m.end(lastSeq)), first)
				require.GreaterOrEqual(t, m.end(lastSeq), end)
				for seq := first; seq <= lastSeq; seq++ {
					pos, ok := m.pos(seq)
					require.True(t, ok)
					require.False(t, given[pos])
					delete(stale, seq)
					given[pos], stream[seq] = true, pos
				}
				end = m.end(lastSeq)
			case 4:
				if random.IntN(4) == 0 {
					clear(stream)
					clear(stale)
					lastSeq = uint64(random.IntN(3))
					for seq := range lastSeq {
						stale[seq+1] = true
					}
					m.replaced(max(end, store.Pos(lastSeq)), 1, lastSeq)
					end = m.end(lastSeq)
				} else if before := store.Pos(random.IntN(int(end) + 2)); before > 0 {
					m.Trimmed = max(m.Trimmed, min(before, end+1)-1)
				}
			}
			check(t, m, stream, stale, end)
		}
	}
}

// check walks over all positions, as a reader does.
func check(t *testing.T, m *meta, stream map[uint64]store.Pos, stale map[uint64]bool, end store.Pos) {
	t.Helper()
	found := map[store.Pos]bool{}
	for pos := store.Pos(1); pos <= end; {
		at := m.find(pos)
		require.GreaterOrEqual(t, at.until, pos)
		if at.lost != "" {
			pos = at.until + 1
			continue
		}
		if stream[at.seq] == pos {
			found[pos] = true
		}
		require.False(t, stale[at.seq], "position %d was another record's: %+v", pos, m)
		back, ok := m.pos(at.seq)
		require.True(t, ok)
		require.Equal(t, pos, back)
		pos++
	}
	for seq, pos := range stream {
		if pos > m.Trimmed {
			require.True(t, found[pos], "sequence %d at position %d is found: %+v", seq, pos, m)
		}
	}
}

func TestAMetaSurvivesItsEncoding(t *testing.T) {
	t.Parallel()
	m := meta{ID: newID(), Created: 5, Trimmed: 3, Turns: []turn{{After: 9, Seq: 10, Shift: 4}}}
	text, err := json.Marshal(&m)
	require.NoError(t, err)
	var again meta
	require.NoError(t, json.Unmarshal(text, &again))
	assert.Equal(t, m, again)
	require.Error(t, json.Unmarshal([]byte(`{"id":"00"}`), &again))
}

// Two relays' metas are compared after one of them has dropped turns with a later loss.
func TestWhichMetaIsOlder(t *testing.T) {
	t.Parallel()
	none := &meta{}
	two := &meta{Turns: []turn{{After: 10, Seq: 11, Shift: 5}, {After: 20, Seq: 16, Shift: 9}}}
	deeper := &meta{Turns: []turn{{After: 8, Seq: 9, Shift: 20}}}
	assert.True(t, none.isOlder(two))
	assert.True(t, two.isOlder(deeper))
	assert.False(t, deeper.isOlder(two))
	assert.False(t, two.isOlder(two))
	assert.False(t, two.isOlder(&meta{Created: 1, Turns: deeper.Turns}), "it is about another stream")
	assert.EqualValues(t, 10, none.agrees(two))
	assert.EqualValues(t, 8, two.agrees(deeper))
	assert.EqualValues(t, 20, two.agrees(&meta{Turns: two.Turns[:1]}))
	assert.Equal(t, ^store.Pos(0), two.agrees(two))
	third := &meta{Turns: slices.Clone(two.Turns), Trimmed: two.Turns[1].first()}
	third.rewind(40, 50, 35)
	assert.Len(t, third.Turns, 2, "what the first turn counted is trimmed")
	assert.EqualValues(t, 40, third.agrees(two))
	assert.EqualValues(t, 40, two.agrees(third))
}

// A turn begins while a conditional append is tried. It may have what the first try stored.
func TestAConditionalAppendInAnotherTurn(t *testing.T) {
	t.Parallel()
	a, after := &attempt{log: &Log{}}, store.Pos(10)
	a.log.current.Store(&meta{})
	require.NoError(t, a.expect(&after))
	a.log.current.Store(&meta{Turns: []turn{{After: 10, Seq: 11, Shift: 20}}})
	err := a.expect(&after)
	require.ErrorIs(t, err, store.ErrUnknown)
	require.NotErrorIs(t, err, store.ErrConflict)
	require.ErrorIs(t, (&attempt{log: a.log}).expect(&after), store.ErrConflict)
}
