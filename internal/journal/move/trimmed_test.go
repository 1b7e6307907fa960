package move_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/internal/journal"
	"github.com/auditrelay/auditrelay/internal/journal/move"
	"github.com/auditrelay/auditrelay/internal/testbed/natstest"
)

// A move is killed and taken back, the relay goes on and trims what it has, also beyond what was
// copied, and the move is begun again: the new place has everything that the old one has.
func TestTheSourceIsTrimmedBetweenTwoRunsOfAMove(t *testing.T) {
	t.Parallel()
	srv := natstest.Run(t, t.TempDir())
	for name, to := range map[string]func() *site{
		"to a disk":    func() *site { return onDisk(t) },
		"to a cluster": func() *site { return onCluster(t, srv.ClientURL()) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			made, keys, password := filled(t)
			from := onCluster(t, srv.ClientURL())
			require.NoError(t, run(t, made, from, nil))
			grow(t, from, 40)
			killed := 0
			for at := 3; ; at += 4 {
				target := to()
				f := &faults{at: at, after: at%8 == 3}
				err := run(t, from, target, f)
				if f.n < at || !takenBack(t, from) { // all writes were done, or the new place counts
					break
				}
				require.ErrorIs(t, err, errKilled)
				killed++
				trim(t, from, killed%2 == 0)
				require.NoError(t, run(t, from, target, nil))
				want, got := from.picture(t), target.picture(t)
				require.Equal(t, want.Values, got.Values)
				for log, l := range want.Logs {
					all := got.Logs[log]
					require.Equal(t, l.End, all.End, log)
					assert.Equal(t, l.Records, all.Records[len(all.Records)-len(l.Records):], "%s: a disk drops whole segments only", log)
				}
				require.NoError(t, run(t, target, from, nil))
				grow(t, from, 5)
			}
			assert.Greater(t, killed, 3)
			works(t, from, keys, password, nil)
		})
	}
}

// grow has a relay take events and refuse some, and deliver all.
func grow(t *testing.T, at *site, n int) {
	t.Helper()
	s := at.open(t, nil)
	r := openRooms(t, s)
	for i := range n {
		r.push(t, fmt.Sprint("more ", i))
	}
	state, err := r.journal.Sinks(t.Context())
	require.NoError(t, err)
	for _, sink := range state {
		r.take(t, sink.Sink, int(sink.Pending)) //nolint:gosec // some records
	}
	r.close()
}

// takenBack takes an unfinished move back, and reports whether there was one.
func takenBack(t *testing.T, from *site) bool {
	t.Helper()
	p := from.open(t, nil)
	defer func() { require.NoError(t, p.Close()) }()
	_, begun, err := move.TakeBack(t.Context(), p)
	require.NoError(t, err)
	return begun
}

// trim drops the oldest event, or all except the newest.
func trim(t *testing.T, at *site, all bool) {
	t.Helper()
	p := at.open(t, nil)
	defer func() { require.NoError(t, p.Close()) }()
	l, err := p.Log(t.Context(), journal.EventsLog, keep(journal.EventsLog))
	require.NoError(t, err)
	state, err := l.State(t.Context())
	require.NoError(t, err)
	before := state.First + 1
	if all {
		before = state.End
	}
	require.NoError(t, l.Trim(t.Context(), before))
}
