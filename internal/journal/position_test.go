package journal

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/internal/store"
	"github.com/auditrelay/auditrelay/internal/testbed/damage"
	"github.com/auditrelay/auditrelay/internal/testbed/waiting"
	"github.com/auditrelay/auditrelay/relay"
	"github.com/auditrelay/auditrelay/relay/relaytest"
)

// twoSinks makes a journal of 30 records, of which one sink has had 20, and the other none.
func twoSinks(t *testing.T) (dir string, events []relay.Event) {
	t.Helper()
	dir, events = t.TempDir(), relaytest.Events(30)
	j := open(t, dir, testConfig)
	for i := range events {
		j.push(t, events[i:i+1])
	}
	j.source(t, "late").Close()
	ahead, err := j.Source(t.Context(), "ahead", relay.BatchLimit{Events: 1, Bytes: 1 << 20})
	require.NoError(t, err)
	read(t, ahead, 20, true)
	ahead.Close()
	j.shut(t)
	return dir, events
}

// gets opens a sink, and requires that it is given exactly these events.
func (o *opened) gets(t *testing.T, sink string, events []relay.Event) {
	t.Helper()
	s := o.source(t, sink)
	defer s.Close()
	require.Equal(t, ids(events), ids(read(t, s, len(events), true)), sink)
}

// No value that came to stand in a wrong place skips anything: the sink gets everything that
// is kept, and the relay says so.
func TestAMisdirectedPositionSkipsNothing(t *testing.T) {
	t.Parallel()
	dir, events := twoSinks(t)
	value := func(j *opened, change func(*positionValue)) {
		v := positionValue{Version: positionVersion, Sink: "late", Log: j.id.String(), Position: 20}
		r, err := recordFrom(t.Context(), j.events, 20, 21)
		require.NoError(t, err)
		m := markOf(r)
		v.Sum, v.Events = m.sum, m.events
		change(&v)
		text := fmt.Appendf(nil, `{"version":%d,"sink":%q,"log_id":%q,"position":%d,"checksum":%d,"events":%d}`, v.Version, v.Sink, v.Log, v.Position, v.Sum, v.Events)
		require.NoError(t, j.table.PutLazy(t.Context(), keysOf(0).position+"late", text, store.If{}))
	}
	for name, c := range map[string]struct {
		change func(*positionValue)
		why    string
	}{
		"another sink's":        {func(v *positionValue) { v.Sink = "ahead" }, `it is of the sink "ahead"`},
		"another log's":         {func(v *positionValue) { v.Log = "0123.0" }, "it is of the log 0123.0"},
		"another record's":      {func(v *positionValue) { v.Sum++ }, "another record stands at position 20"},
		"after the end":         {func(v *positionValue) { v.Position = 31 }, "it is 31, and the log ends with 30"},
		"of a later version":    {func(v *positionValue) { v.Version++ }, "it has the version 2"},
		"with nothing wrong":    {func(*positionValue) {}, ""},
		"at the log's very end": {func(v *positionValue) { v.Position, v.Sum = 30, 0 }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			copied := t.TempDir()
			require.NoError(t, os.CopyFS(copied, os.DirFS(dir)))
			j := open(t, copied, testConfig)
			value(j, c.change)
			if c.why == "" {
				at, why, err := j.position(t.Context(), "late", &store.State{End: 30})
				require.NoError(t, err)
				assert.Empty(t, why)
				assert.GreaterOrEqual(t, at.pos, store.Pos(20))
				return
			}
			_, err := j.trimAll(t)
			require.ErrorIs(t, err, errUncertain)
			require.ErrorContains(t, err, c.why)
			j.gets(t, "late", events)
			assert.Equal(t, 1.0, j.metric(t, "auditrelay_journal_positions_distrusted_total"))
			_, err = j.trimAll(t)
			require.NoError(t, err, "what is written at its next position is believed")
			j.gets(t, "ahead", events[20:])
		})
	}
}

// A write of one sink's position that lands on another sink's costs nothing.
func TestAPositionCopiedOverAnother(t *testing.T) {
	t.Parallel()
	dir, events := twoSinks(t)
	require.NoError(t, damage.Of(dir).CopyValue(keysOf(0).position+"ahead", keysOf(0).position+"late"))
	j := open(t, dir, testConfig)
	j.gets(t, "late", events)
	j.gets(t, "ahead", events[20:])
}

// Where both copies of a position rot, the sink gets everything again, and nothing is
// trimmed before it has.
func TestAPositionThatRots(t *testing.T) {
	t.Parallel()
	dir, events := twoSinks(t)
	require.NoError(t, damage.Of(dir).FlipValue(keysOf(0).position+"ahead"))
	j := open(t, dir, testConfig)
	n, err := j.delivered(t.Context())
	require.NoError(t, err)
	assert.Zero(t, n)
	j.gets(t, "ahead", events)
}

// A position stands at a record that has rotted since. That is no reason to doubt it.
func TestARecordThatRotsAtAPosition(t *testing.T) {
	t.Parallel()
	dir, events := twoSinks(t)
	_, err := damage.Of(dir).FlipRecord(EventsLog, 19)
	require.NoError(t, err)
	j := open(t, dir, testConfig)
	j.gets(t, "ahead", events[20:])
	assert.Zero(t, j.metric(t, "auditrelay_journal_positions_distrusted_total"))
}

// The files of the log are put back to an earlier state. Every record that they lack is
// named, no position is given out again, and what is pushed since is delivered. Where the end mark
// knows nothing of these records, the position of a sink does, and what came after it is doubtful.
func TestALogThatWasPutBack(t *testing.T) {
	t.Parallel()
	damaged := Loss{From: 2, To: 6, Why: store.Damaged}
	doubtful := Loss{From: 7, To: 6 + unseenMargin, Why: store.Doubtful}
	for name, c := range map[string]struct {
		harm func(mark, earlier string) error
		lost []Loss
	}{
		"the end mark is whole":   {func(string, string) error { return nil }, []Loss{damaged}},
		"the end mark is lost":    {func(mark, _ string) error { return os.Remove(mark) }, []Loss{damaged, doubtful}},
		"the end mark is harmed":  {func(mark, _ string) error { return os.WriteFile(mark, make([]byte, 16<<10), 0o600) }, []Loss{damaged, doubtful}},
		"the end mark is earlier": {func(mark, earlier string) error { return damage.CopyOver(earlier, mark) }, []Loss{damaged, doubtful}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir, saved := t.TempDir(), t.TempDir()
			j := open(t, dir, testConfig)
			j.push(t, relaytest.Events(1))
			j.shut(t)
			require.NoError(t, damage.CopyDir(storeIn(dir), saved))
			j = open(t, dir, testConfig)
			for i := range 5 {
				j.push(t, relaytest.Events(1, relaytest.From(100+i)))
			}
			s := j.source(t, "k")
			read(t, s, 6, true)
			s.Close()
			j.shut(t)

			events := filepath.Join(storeIn(dir), EventsLog)
			require.NoError(t, os.RemoveAll(events))
			require.NoError(t, os.CopyFS(events, os.DirFS(filepath.Join(saved, EventsLog))))
			require.NoError(t, c.harm(events+".end", filepath.Join(saved, EventsLog+".end")))
			for range 2 { // the second start loses nothing more
				j = open(t, dir, testConfig)
				for i := range 4 {
					j.push(t, relaytest.Events(1, relaytest.From(200+i)))
				}
				s = j.source(t, "k")
				assert.Equal(t, ids(relaytest.Events(4, relaytest.From(200))), ids(read(t, s, 4, true)))
				s.Close()
				j.losses(t, c.lost)
				j.shut(t)
			}
		})
	}
}

// losses waits until these losses are named, and requires that there are no others.
func (o *opened) losses(t *testing.T, want []Loss) {
	t.Helper()
	var named []Loss
	waiting.Until(t, func() bool {
		all, err := o.names.All(t.Context())
		require.NoError(t, err)
		named = nil
		for _, l := range all {
			named = append(named, Loss{From: l.From, To: l.To, Why: l.Why})
		}
		return len(named) >= len(want)
	}, "what the files lack is not named")
	require.ElementsMatch(t, want, named)
}

// A damaged record in a sink's backlog costs that record and nothing else, and it is named
// before the sink's position passes it.
func TestDamageInABacklogIsNamedBeforeItIsPassed(t *testing.T) {
	t.Parallel()
	dir, events := twoSinks(t)
	at, err := damage.Of(dir).FlipRecord(EventsLog, 24)
	require.NoError(t, err)
	j := open(t, dir, testConfig)
	j.gets(t, "ahead", append(append([]relay.Event{}, events[20:24]...), events[25:]...))
	named, err := j.names.All(t.Context())
	require.NoError(t, err)
	require.Len(t, named, 1)
	assert.Equal(t, []store.Pos{at.Pos, at.Pos}, []store.Pos{named[0].From, named[0].To})
	b, reading := j.Backlog("ahead")
	assert.False(t, reading)
	assert.Zero(t, b)
}

// With the folder of the log removed while the relay runs, pushes are refused, and readiness
// says so for as long as the relay runs.
func TestAFolderThatIsRemovedRefusesPushes(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	j := open(t, dir, testConfig)
	j.push(t, relaytest.Events(1))
	require.NoError(t, os.RemoveAll(filepath.Join(storeIn(dir), EventsLog)))
	for range 2 {
		err := j.Append(t.Context(), batchOf(relaytest.Events(1, relaytest.From(1))))
		require.ErrorIs(t, err, ErrUnavailable)
		require.ErrorIs(t, err, store.ErrGone)
	}
	require.ErrorIs(t, j.Refusing(context.Background()), store.ErrGone)
}
