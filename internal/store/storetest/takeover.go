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

// takeOver has a log take over another one, with everything in its place, and go on.
func takeOver(t *testing.T, b Backend) {
	id := store.ID{Log: [16]byte{1, 2, 3}}
	take := func(first, last store.Pos) error {
		var some []store.Record
		for pos := first; pos <= last; pos++ {
			some = append(some, taken(pos))
		}
		return b.LogAs(t, "trail", id).(store.Taker).Take(t.Context(), some...)
	}
	pass := func(from, to store.Pos, why store.Reason) error {
		return b.LogAs(t, "trail", id).(store.Taker).Pass(t.Context(), store.Gap{From: from, To: to, Why: why})
	}
	shows := func(end store.Pos, lost ...store.Gap) {
		for range 2 {
			l := b.LogAs(t, "trail", store.ID{})
			state, err := l.State(t.Context())
			require.NoError(t, err)
			assert.Equal(t, id, state.ID)
			assert.Equal(t, end, state.End)
			records, gaps := items(t, l, 1)
			for i := range gaps {
				gaps[i].Kept = ""
			}
			assert.Equal(t, lost, gaps)
			for _, r := range records {
				want := taken(r.Pos)
				assert.True(t, want.Time.Equal(r.Time), "%s at %d", r.Time, r.Pos)
				assert.Equal(t, want.Draft, r.Draft)
			}
			b.Kill(t)
		}
	}
	b.LogAs(t, "trail", id)
	shows(0)
	trimmed, damaged := store.Gap{From: 1, To: 4, Why: store.Trimmed}, store.Gap{From: 7, To: 9, Why: store.Damaged}
	require.NoError(t, pass(1, 4, store.Trimmed))
	require.NoError(t, b.LogAs(t, "trail", id).Trim(t.Context(), 5))
	shows(4, trimmed)
	require.NoError(t, take(5, 6))
	shows(6, trimmed)
	require.NoError(t, pass(7, 9, store.Damaged))
	shows(9, trimmed, damaged)
	require.ErrorIs(t, take(11, 12), store.ErrConflict)
	require.ErrorIs(t, pass(11, 12, store.Damaged), store.ErrConflict)
	require.ErrorIs(t, take(9, 9), store.ErrConflict)
	require.NoError(t, take(10, 1300))
	doubtful := store.Gap{From: 1301, To: 1302, Why: store.Doubtful}
	require.NoError(t, pass(1301, 1302, store.Doubtful))
	require.NoError(t, take(1303, 1303))
	shows(1303, trimmed, damaged, doubtful)

	l := b.LogAs(t, "trail", store.ID{})
	at, err := l.Seek(t.Context(), taken(1000).Time)
	require.NoError(t, err)
	assert.Equal(t, store.Pos(1000), at)
	before := time.Now().Add(-time.Minute)
	at, err = l.Append(t.Context(), draft("new"))
	require.NoError(t, err)
	assert.Equal(t, store.Pos(1304), at, "it goes on after the positions that it took over")
	at, err = l.Seek(t.Context(), before)
	require.NoError(t, err)
	assert.Equal(t, store.Pos(1304), at)
	b.Kill(t)
	records, _ := items(t, b.Log(t, "trail"), 1303)
	require.Len(t, records, 2)
	assert.True(t, records[1].Time.After(before), "what comes later has the present time")
}
