package journal

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/auditrelay/auditrelay/internal/datadir"
	"github.com/auditrelay/auditrelay/internal/testbed/waiting"
	"github.com/auditrelay/auditrelay/relay"
)

// breakWrites makes writes to this process's open files under dir fail: as on a full
// disk or, with a device that takes writes, at the fsync.
func breakWrites(t *testing.T, dir, device string) {
	t.Helper()
	bad, err := os.OpenFile(device, os.O_RDWR, 0)
	require.NoError(t, err)
	defer func() { require.NoError(t, bad.Close()) }()
	fds, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	broken := 0
	for _, fd := range fds {
		target, err := os.Readlink("/proc/self/fd/" + fd.Name())
		if err == nil && strings.HasPrefix(target, dir) && strings.HasSuffix(target, ".blk") {
			n := 0
			for _, digit := range fd.Name() {
				n = 10*n + int(digit-'0')
			}
			require.NoError(t, unix.Dup3(int(bad.Fd()), n, unix.O_CLOEXEC))
			broken++
		}
	}
	require.Positive(t, broken, "no file of the journal is open")
}

// After a failed write or fsync the journal acknowledges nothing, refuses appends at
// once, and comes back by itself with all its records.
func TestAFailedWriteIsMended(t *testing.T) {
	for _, c := range []struct{ name, device string }{
		{"no space", "/dev/full"},
		{"fsync fails", "/dev/null"}, // takes writes, cannot be synced
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			j := open(t, dir, testConfig)
			defer j.shut(t)
			one := func(id string) []relay.Event { return []relay.Event{{ID: id, Time: time.Now(), Received: time.Now()}} }
			j.push(t, one("before"))
			s := j.source(t, "s")
			defer s.Close()
			ctx, cancel := context.WithTimeout(t.Context(), waiting.Stall)
			defer cancel()
			b, err := s.Next(ctx)
			require.NoError(t, err)
			require.Equal(t, []string{"before"}, ids(b.Events))

			newest := filepath.Join(datadir.StreamDir(dir, "TEST_EVENTS"), "msgs", "1.blk")
			written, err := os.Stat(newest)
			require.NoError(t, err)
			breakWrites(t, dir, c.device)
			start := time.Now()
			err = j.Append(ctx, batchOf(one("refused")))
			require.ErrorIs(t, err, ErrUnavailable)
			require.ErrorContains(t, err, "write error")
			assert.Less(t, time.Since(start), attemptTimeout, "a sender waits for nothing")

			waiting.Until(t, func() bool { return j.conn.Err() == nil })
			renewed, err := os.Stat(newest)
			require.NoError(t, err)
			require.False(t, os.SameFile(written, renewed), "what can be read there may not be on disk")
			require.NoError(t, s.Ack(ctx, b.Position), "also where the server is another one")
			j.push(t, one("after"))
			for got := ""; got != "after"; {
				b, err := s.Next(ctx)
				require.NoError(t, err)
				require.NoError(t, s.Ack(ctx, b.Position))
				got = b.Events[len(b.Events)-1].ID
				require.NotEqual(t, "before", got, "was given out already")
			}
			waiting.Until(t, func() bool {
				delivered, err := j.delivered(ctx)
				return err == nil && delivered >= 2
			}, "the position goes on")
		})
	}
}

// An acknowledgement without a server counts: the source repeats it when the server
// offers the record again.
func TestAnAcknowledgementWaitsForTheServer(t *testing.T) {
	t.Parallel()
	dir, cfg := t.TempDir(), testConfig
	srv := startExternal(t, dir, 0)
	cfg.URL = srv.ClientURL()
	j := open(t, t.TempDir(), cfg)
	defer j.shut(t)
	j.push(t, []relay.Event{{ID: "a", Time: time.Now(), Received: time.Now()}})
	s := j.source(t, "s")
	defer s.Close()
	ctx, cancel := context.WithTimeout(t.Context(), waiting.Stall)
	defer cancel()
	b, err := s.Next(ctx)
	require.NoError(t, err)
	addr, ok := srv.Addr().(*net.TCPAddr)
	require.True(t, ok)
	srv.Shutdown()
	srv.WaitForShutdown()
	waiting.Until(t, func() bool { return !j.conn.JetStream.Conn().IsConnected() })
	require.NoError(t, s.Ack(ctx, b.Position))
	startExternal(t, dir, addr.Port)
	waiting.Until(t, func() bool {
		_, err := j.stream.ResetConsumer(ctx, consumerPrefix+"s") // offers it again before ackWait
		return err == nil
	})
	waiting.Until(t, func() bool {
		delivered, err := j.delivered(ctx)
		return err == nil && delivered == 1
	})
}
