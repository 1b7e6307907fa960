package cluster

import (
	"encoding/json"
	"math/rand/v2"
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
					stale[lastSeq] = true
				}
				m.rewind(after, max(end, m.end(lastSeq)), lastSeq+1)
				require.GreaterOrEqual(t, m.end(lastSeq), end)
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
