package storetest

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/internal/store"
)

// taken is a record of another store, a long time ago.
func taken(pos store.Pos) store.Record {
	data := bytes.Repeat([]byte{byte(pos)}, int(pos))
	return store.Record{Pos: pos, Time: time.Unix(1_000_000+int64(pos), 5), Draft: store.Draft{Kind: 7, Key: fmt.Sprint(pos), Data: data}}
}

// taker is a log that takes over another one, under a test.
type taker struct {
	t testing.TB
	b Backend
}

// takenID is the id that the log had in the other store.
func takenID() store.ID { return store.ID{Log: [16]byte{1, 2, 3}} }

func (k taker) log() store.Taker { return k.b.LogAs(k.t, "trail", takenID()).(store.Taker) }

func (k taker) take(first, last store.Pos) error {
	var some []store.Record
	for pos := first; pos <= last; pos++ {
		some = append(some, taken(pos))
	}
	return k.log().Take(k.t.Context(), some...)
}

func (k taker) pass(from, to store.Pos, why store.Reason) error {
	return k.log().Pass(k.t.Context(), store.Gap{From: from, To: to, Why: why})
}

// shows reads the log, and again after a kill. What it has is the other store's.
func (k taker) shows(end store.Pos, lost ...store.Gap) {
	for range 2 {
		state, err := k.log().State(k.t.Context())
		require.NoError(k.t, err)
		assert.Equal(k.t, takenID(), state.ID)
		assert.Equal(k.t, end, state.End)
		records, gaps := items(k.t, k.log(), 1)
		for i := range gaps {
			gaps[i].Kept = ""
		}
		assert.Equal(k.t, lost, gaps)
		for _, r := range records {
			want := taken(r.Pos)
			assert.True(k.t, want.Time.Equal(r.Time), "%s at %d", r.Time, r.Pos)
			assert.Equal(k.t, want.Draft, r.Draft)
		}
		k.b.Kill(k.t)
	}
}

// takeOver has a log take over another one, with everything in its place, and go on.
func takeOver(t *testing.T, b Backend) {
	k := taker{t, b}
	k.shows(0)
	trimmed, damaged := store.Gap{From: 1, To: 4, Why: store.Trimmed}, store.Gap{From: 7, To: 9, Why: store.Damaged}
	require.NoError(t, k.pass(1, 4, store.Trimmed))
	require.NoError(t, k.log().Trim(t.Context(), 5))
	k.shows(4, trimmed)
	require.NoError(t, k.take(5, 6))
	k.shows(6, trimmed)
	require.NoError(t, k.pass(7, 9, store.Damaged))
	k.shows(9, trimmed, damaged)
	require.ErrorIs(t, k.take(11, 12), store.ErrConflict)
	require.ErrorIs(t, k.pass(11, 12, store.Damaged), store.ErrConflict)
	require.ErrorIs(t, k.take(9, 9), store.ErrConflict)
	require.NoError(t, k.take(10, 1300))
	doubtful := store.Gap{From: 1301, To: 1302, Why: store.Doubtful}
	require.NoError(t, k.pass(1301, 1302, store.Doubtful))
	require.NoError(t, k.take(1303, 1303))
	k.shows(1303, trimmed, damaged, doubtful)
	goesOn(t, k)
}

// goesOn appends to a log that ends with 1303: what comes later has the present time.
func goesOn(t *testing.T, k taker) {
	at, err := k.log().Seek(t.Context(), taken(1000).Time)
	require.NoError(t, err)
	assert.Equal(t, store.Pos(1000), at)
	before := time.Now().Add(-time.Minute)
	at, err = k.log().Append(t.Context(), draft("new"))
	require.NoError(t, err)
	assert.Equal(t, store.Pos(1304), at, "it goes on after the positions that it took over")
	at, err = k.log().Seek(t.Context(), before)
	require.NoError(t, err)
	assert.Equal(t, store.Pos(1304), at)
	k.b.Kill(t)
	records, _ := items(t, k.log(), 1303)
	require.Len(t, records, 2)
	assert.True(t, records[1].Time.After(before))
}
