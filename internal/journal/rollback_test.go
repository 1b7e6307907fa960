package journal

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/internal/testbed/waiting"
	"github.com/auditrelay/auditrelay/relay"
	"github.com/auditrelay/auditrelay/relay/relaytest"
)

// restorable is an external server. Its files can be set back to an earlier state, as a
// power cut does with unsynced writes.
type restorable struct {
	t    *testing.T
	dir  string
	port int
	srv  *server.Server
}

func startRestorable(t *testing.T) *restorable {
	r := &restorable{t: t, dir: t.TempDir()}
	r.start()
	r.port = r.srv.Addr().(*net.TCPAddr).Port
	return r
}

func (r *restorable) start() { r.srv = startExternal(r.t, filepath.Join(r.dir, "now"), r.port) }

func (r *restorable) stop() { r.srv.Shutdown(); r.srv.WaitForShutdown() }

// save keeps a copy of the files, while the server is away for a moment.
func (r *restorable) save() {
	r.stop()
	require.NoError(r.t, os.CopyFS(filepath.Join(r.dir, "saved"), os.DirFS(filepath.Join(r.dir, "now"))))
	r.start()
}

// rollBack puts the copy back. The positions of consumers stay where keepPositions is set.
func (r *restorable) rollBack(keepPositions bool) {
	r.stop()
	r.restore(keepPositions)
	r.start()
}

func (r *restorable) restore(keepPositions bool) {
	now, saved := filepath.Join(r.dir, "now"), filepath.Join(r.dir, "saved")
	if keepPositions {
		positions, err := filepath.Glob(filepath.Join(now, "jetstream", "*", "streams", "*_EVENTS", "obs", "*"))
		require.NoError(r.t, err)
		require.NotEmpty(r.t, positions)
		for _, dir := range positions {
			relative, err := filepath.Rel(now, dir)
			require.NoError(r.t, err)
			require.NoError(r.t, os.RemoveAll(filepath.Join(saved, relative)))
			require.NoError(r.t, os.CopyFS(filepath.Join(saved, relative), os.DirFS(dir)))
		}
	}
	require.NoError(r.t, os.RemoveAll(now))
	require.NoError(r.t, os.Rename(saved, now))
}

func (r *restorable) config() config.Journal {
	cfg := testConfig
	cfg.URL = r.srv.ClientURL()
	return cfg
}

// insist pushes each event by itself until it is acknowledged, as a sender does.
func insist(t *testing.T, j *opened, from, n int) []string {
	t.Helper()
	events := relaytest.Events(n, relaytest.From(from))
	for i := range events {
		waiting.Until(t, func() bool {
			err := j.Append(t.Context(), batchOf(events[i:i+1]))
			if err != nil {
				require.ErrorIs(t, err, ErrUnavailable)
			}
			return err == nil
		}, "event %d is never taken", i)
	}
	return ids(events)
}

// deliver acknowledges batches until all wanted events were there, and returns everything
// it read.
func deliver(t *testing.T, s *Source, want ...string) (got []string) {
	t.Helper()
	missing := slices.Clone(want)
	for len(missing) > 0 {
		bounded, cancel := context.WithTimeout(t.Context(), waiting.Stall)
		b, err := s.Next(bounded)
		cancel()
		if errors.Is(err, context.DeadlineExceeded) {
			require.Fail(t, "acknowledged and never delivered", "%d of %d: %v", len(missing), len(want), missing)
		}
		require.NoError(t, err)
		got = append(got, ids(b.Events)...)
		missing = slices.DeleteFunc(missing, func(id string) bool { return slices.Contains(got, id) })
		require.NoError(t, s.Ack(t.Context(), b.Position))
	}
	return got
}

// A server without the stream's end gives its positions out anew. Later events are
// delivered, and lost ones are named.
func TestTheEndOfTheStreamIsLost(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		restart, keepPositions bool
		more                   int // events behind the loss, of 20 lost ones
	}{
		"while the relay runs":                              {false, false, 30},
		"while the relay runs, less comes than was lost":    {false, false, 5},
		"while the relay runs, positions are ahead":         {false, true, 30},
		"while the relay is away":                           {true, false, 30},
		"while the relay is away, positions are ahead":      {true, true, 30},
		"while the relay is away, less comes than was lost": {true, true, 5},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv := startRestorable(t)
			dir := t.TempDir()
			j := open(t, dir, srv.config())
			s, idle := j.source(t, "k"), j.source(t, "idle")
			deliver(t, s, insist(t, j, 0, 10)...)
			srv.save()
			lost := insist(t, j, 100, 20)
			deliver(t, s, lost...)
			deliver(t, idle, lost...)
			idle.Close() // its position has to be set back as well

			if c.restart {
				s.Close()
				j.shut(t)
				srv.rollBack(c.keepPositions)
				j = open(t, dir, srv.config())
				s = j.source(t, "k")
			} else {
				srv.rollBack(c.keepPositions)
			}
			defer j.shut(t)
			defer func() { s.Close() }()
			fresh := insist(t, j, 1000, c.more)
			deliver(t, s, fresh...)
			idle = j.source(t, "idle")
			defer idle.Close()
			deliver(t, idle, fresh...)

			named, err := j.Losses.All(t.Context())
			require.NoError(t, err)
			require.Len(t, named, 1)
			assert.Equal(t, []uint64{11, 30}, []uint64{named[0].From, named[0].To})
			waiting.Until(t, func() bool {
				all, err := j.Positions.List(t.Context())
				return err == nil && len(all) == 2 && all[0].Pending == 0 && all[1].Pending == 0
			}, "the positions follow")
		})
	}
}

// A batch under way during the loss of the end is acknowledged later. The new records at
// its positions are delivered all the same.
func TestALateAcknowledgementOfWhatWasLost(t *testing.T) {
	t.Parallel()
	srv := startRestorable(t)
	j := open(t, t.TempDir(), srv.config())
	defer j.shut(t)
	s, err := j.Source(t.Context(), "k", relay.BatchLimit{Events: 1, Bytes: 1 << 20})
	require.NoError(t, err)
	defer s.Close()
	deliver(t, s, insist(t, j, 0, 10)...)
	srv.save()
	insist(t, j, 100, 20)
	var underWay []relay.Batch
	for range 15 {
		b, err := s.Next(t.Context())
		require.NoError(t, err)
		underWay = append(underWay, b)
	}
	srv.rollBack(false)
	fresh := insist(t, j, 1000, 30)
	for _, b := range underWay {
		require.NoError(t, s.Ack(t.Context(), b.Position), "the pump does not know of it")
	}
	deliver(t, s, fresh...)
	waiting.Until(t, func() bool {
		all, err := j.Positions.List(t.Context())
		return err == nil && len(all) == 1 && all[0].Pending == 0
	}, "the position follows")
}

// The same again: the second loss is named beside the first.
func TestTheEndIsLostTwice(t *testing.T) {
	t.Parallel()
	srv := startRestorable(t)
	j := open(t, t.TempDir(), srv.config())
	defer j.shut(t)
	s := j.source(t, "k")
	defer s.Close()
	deliver(t, s, insist(t, j, 0, 10)...)
	for round := range 2 {
		srv.save()
		deliver(t, s, insist(t, j, 100+1000*round, 20)...)
		srv.rollBack(true)
		deliver(t, s, insist(t, j, 200+1000*round, 5)...)
	}
	named, err := j.Losses.All(t.Context())
	require.NoError(t, err)
	var spans [][2]uint64
	for _, q := range named {
		spans = append(spans, [2]uint64{q.From, q.To})
	}
	// The quarantine's own end was lost with the second copy only where it was saved before the first loss.
	assert.Equal(t, [][2]uint64{{11, 30}, {16, 35}}, spans)
}

// An outage without a loss is none.
func TestAnOutageLosesNothing(t *testing.T) {
	t.Parallel()
	srv := startRestorable(t)
	dir := t.TempDir()
	j := open(t, dir, srv.config())
	s := j.source(t, "k")
	first := insist(t, j, 0, 10)
	assert.Equal(t, first, deliver(t, s, first...))
	srv.stop()
	srv.start()
	second := insist(t, j, 100, 10)
	assert.Equal(t, second, deliver(t, s, second...), "nothing comes twice")
	s.Close()
	j.shut(t)
	srv.stop()
	srv.start()
	j = open(t, dir, srv.config())
	defer j.shut(t)
	s = j.source(t, "k")
	defer s.Close()
	third := insist(t, j, 200, 10)
	assert.Equal(t, third, deliver(t, s, third...), "nothing comes twice")
	named, err := j.Losses.All(t.Context())
	require.NoError(t, err)
	assert.Empty(t, named)
}

// Somebody took the stream away, or the server came back with empty files: the
// next start makes it anew and names what the old one had.
func TestTheStreamIsReplaced(t *testing.T) {
	t.Parallel()
	srv := startRestorable(t)
	dir := t.TempDir()
	j := open(t, dir, srv.config())
	s := j.source(t, "k")
	deliver(t, s, insist(t, j, 0, 10)...)
	insist(t, j, 100, 20)
	s.Close()
	require.NoError(t, j.conn.JetStream.DeleteStream(t.Context(), j.names.events))
	j.shut(t)
	j = open(t, dir, srv.config())
	defer j.shut(t)
	named, err := j.Losses.All(t.Context())
	require.NoError(t, err)
	require.Len(t, named, 1)
	assert.EqualValues(t, 30, named[0].To)
	s = j.source(t, "k")
	defer s.Close()
	deliver(t, s, insist(t, j, 1000, 30)...)
}
