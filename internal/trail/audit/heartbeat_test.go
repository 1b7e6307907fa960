package audit

import (
	"context"
	"encoding/json"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/auditrelay/auditrelay/internal/store"
)

// A run of six hours with a change in it: a checkpoint at the start, an hour after each
// checkpoint, after the change, and at the stop.
func TestTheHeartbeat(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		grew, grown := make(chan struct{}, 1), atomic.Bool{}
		b := beat{every: time.Hour}
		var at []time.Duration
		var promises []string
		look := func(stop bool) {
			if !grown.Load() && !b.due(stop) {
				return
			}
			grown.Store(false)
			at, promises = append(at, time.Since(start).Round(time.Minute)), append(promises, b.promise(stop))
			b.at = time.Now()
			b.signed(stop)
		}
		ctx, cancel := context.WithCancel(t.Context())
		go whileRunning(ctx, grew, 2*time.Second, func() { look(false) })
		time.Sleep(2*time.Hour + 30*time.Minute)
		grown.Store(true)
		grew <- struct{}{}
		time.Sleep(3*time.Hour + 15*time.Minute)
		cancel()
		synctest.Wait()
		look(true)
		look(true)
		m := time.Minute
		assert.Equal(t, []time.Duration{0, 60 * m, 120 * m, 150 * m, 210 * m, 270 * m, 330 * m, 345 * m}, at)
		assert.Equal(t, []string{promisePrefix + "3600\n", "", "", "", "", "", "", promisePrefix + "0\n"}, promises)
	})
}

// history signs checkpoints of one tree at the given minutes, with their promises.
func history(t *testing.T, key keyPair, promises map[int]string, minutes ...int) (signed [][]byte) {
	t.Helper()
	for _, m := range minutes {
		text, err := signCheckpoint(t.Context(), key, tree{}.With(tlog.Hash{1}), promises[m], testTime.Add(time.Duration(m)*time.Minute))
		require.NoError(t, err)
		signed = append(signed, text)
	}
	return signed
}

func TestGapsAreNamedAndStopsAreNone(t *testing.T) {
	t.Parallel()
	key, err := generateKey(t.TempDir()+"/key", "example.com/trail")
	require.NoError(t, err)
	starts, stop := promisePrefix+"3600\n", promisePrefix+"0\n"
	minute := func(m int) time.Time { return testTime.Add(time.Duration(m) * time.Minute).UTC() }
	for name, tc := range map[string]struct {
		promises map[int]string
		at       []int
		now      int
		want     [][2]int
	}{
		"none":                {map[int]string{0: starts}, []int{0, 60, 120, 185, 300}, 400, nil},
		"a gap":               {map[int]string{0: starts}, []int{0, 60, 200, 260}, 300, [][2]int{{60, 200}}},
		"two":                 {map[int]string{0: starts}, []int{0, 121, 242}, 242, [][2]int{{0, 121}, {121, 242}}},
		"a stop":              {map[int]string{0: starts, 60: stop, 600: starts}, []int{0, 60, 600, 660}, 700, nil},
		"a kill":              {map[int]string{0: starts, 600: starts}, []int{0, 60, 600}, 700, [][2]int{{60, 600}}},
		"a kill, and a start": {map[int]string{0: starts, 70: starts}, []int{0, 60, 70}, 100, nil},
		"silent now":          {map[int]string{0: starts}, []int{0, 60}, 200, [][2]int{{60, 200}}},
		"stopped now":         {map[int]string{0: starts, 60: stop}, []int{0, 60}, 2000, nil},
		"no promise":          {nil, []int{0, 6000}, 60000, nil},
		"swapped":             {map[int]string{0: starts}, []int{0, 120, 60, 180}, 180, [][2]int{{120, 60}}},
	} {
		var p Pulse
		for i, signed := range history(t, key, tc.promises, tc.at...) {
			c, err := openCheckpoint(key.public, signed)
			require.NoError(t, err)
			p.Add(c.Signing, uint64(i+1))
		}
		var got [][2]int
		for _, g := range p.Gaps(minute(tc.now)) {
			got = append(got, [2]int{int(g.After.Sub(testTime).Minutes()), int(g.Until.Sub(testTime).Minutes())})
		}
		assert.Equal(t, tc.want, got, name)
	}
}

// The time and the promise of a checkpoint are signed: a change to either is found.
func TestAForgedTimeIsFound(t *testing.T) {
	t.Parallel()
	key, err := generateKey(t.TempDir()+"/key", "example.com/trail")
	require.NoError(t, err)
	signed := history(t, key, map[int]string{0: promisePrefix + "3600\n"}, 0)[0]
	data, err := encodeKept(key, signed, testTime, tree{}, []tlog.Hash{{1}})
	require.NoError(t, err)
	c, err := decodeKept(&store.Record{Pos: 1, Draft: data})
	require.NoError(t, err)
	require.True(t, c.Promised)
	require.Equal(t, time.Hour, c.Within)
	require.True(t, c.Time.Equal(testTime))
	for name, change := range map[string]func(k *keptCheckpoint){
		"time":      func(k *keptCheckpoint) { k.Time = k.Time.Add(time.Second) },
		"no time":   func(k *keptCheckpoint) { k.Time = time.Time{} },
		"promise":   func(k *keptCheckpoint) { k.Note = strings.Replace(k.Note, " 3600", " 0", 1) },
		"timestamp": func(k *keptCheckpoint) { k.Note = cutLine(k.Note, 6) },
		"signature": func(k *keptCheckpoint) { k.Note = cutLine(k.Note, 5) },
	} {
		m := copyDraft(&data)
		changeKept(m, change)
		_, err := decodeKept(&store.Record{Pos: 1, Draft: *m})
		assert.Error(t, err, name)
	}
	var kept map[string]any
	require.NoError(t, json.Unmarshal(data.Data, &kept))
	require.Equal(t, "2026-11-21T08:00:00Z", kept["time"])
}

// cutLine cuts a line out, counted from 0.
func cutLine(text string, n int) string {
	lines := strings.SplitAfter(text, "\n")
	return strings.Join(append(lines[:n:n], lines[n+1:]...), "")
}

// A trail signs when it is opened and closed again, without a change: the same tree,
// small messages, and nothing is counted or named for it.
func TestAnUnchangedTrailIsSignedAgain(t *testing.T) {
	t.Parallel()
	st, _ := startStore(t, t.TempDir())
	o := testOptions(t)
	o.Heartbeat = time.Hour
	trail := openTrail(t, st, o)
	appendEntries(t, trail, 0, 5)
	require.NoError(t, trail.Sign(t.Context()))
	require.NoError(t, trail.Close(t.Context()))
	for range 2 {
		again := openTrail(t, st, o)
		require.NoError(t, again.Sign(t.Context()))
		require.NoError(t, again.Close(t.Context()))
	}
	kept := records(t, st, CheckpointsLog)
	var promises []string
	for _, m := range kept {
		c, err := decodeKept(&store.Record{Pos: 1, Draft: *m})
		require.NoError(t, err)
		require.WithinDuration(t, time.Now(), c.Time, time.Hour)
		if c.Promised {
			promises = append(promises, c.Within.String())
		}
		require.Less(t, len(m.Data), 1500)
	}
	require.Equal(t, []string{"1h0m0s", "0s", "1h0m0s", "0s", "1h0m0s", "0s"}, promises)
	last := openTrail(t, st, o)
	requireWhole(t, last, 5)
	report, err := last.Verify(t.Context())
	require.NoError(t, err)
	require.Empty(t, report.Gaps)
	heartbeats, before := 0, Kept{}
	for i, m := range records(t, st, CheckpointsLog) {
		c, err := decodeKept(&store.Record{Pos: store.Pos(i) + 1, Draft: *m})
		require.NoError(t, err)
		if c.repeats(&before) {
			heartbeats++
		}
		before = c
	}
	require.GreaterOrEqual(t, heartbeats, 4)
	require.Len(t, report.Generations, 1)
}

// A running trail tells of the gaps in its history, and of the one that is open now.
func TestARunningTrailTellsOfItsGaps(t *testing.T) {
	t.Parallel()
	st, _ := startStore(t, t.TempDir())
	o := testOptions(t)
	o.Heartbeat = time.Minute
	trail := openTrail(t, st, o)
	appendEntries(t, trail, 0, 1)
	waitSigned(t, trail, 1)
	require.Empty(t, trail.Gaps(10))
	silent := time.Now().Add(-time.Hour)
	trail.signedAt.Store(silent.UnixNano()) // the key could not be asked since
	gaps := trail.Gaps(10)
	require.Len(t, gaps, 1)
	require.True(t, silent.Equal(gaps[0].After))
	old := []Gap{{After: silent.Add(-2 * time.Hour), Until: silent.Add(-time.Hour), Checkpoint: 3}}
	shown := *trail.view.Load()
	shown.gaps = old
	trail.view.Store(&shown)
	require.Equal(t, old[0], trail.Gaps(10)[0])
	require.Len(t, trail.Gaps(1), 1)
	require.True(t, silent.Equal(trail.Gaps(1)[0].After), "the newest")
}
