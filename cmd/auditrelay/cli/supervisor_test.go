package cli

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/internal/testbed/waiting"
)

// manager plays systemd.
type manager struct {
	t    *testing.T
	conn *net.UnixConn
}

func newManager(t *testing.T) *manager {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "notify")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: socket, Net: "unixgram"})
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	t.Setenv("NOTIFY_SOCKET", socket)
	t.Setenv("WATCHDOG_USEC", "20000")
	t.Setenv("WATCHDOG_PID", fmt.Sprint(os.Getpid()))
	return &manager{t, conn}
}

// next is the next datagram that is no mere sign of life, or, if alive, the next sign of life.
func (m *manager) next(alive bool) string {
	m.t.Helper()
	require.NoError(m.t, m.conn.SetReadDeadline(time.Now().Add(waiting.Stall)))
	for told := make([]byte, 4096); ; {
		n, err := m.conn.Read(told)
		require.NoError(m.t, err, "nothing was said")
		if state := string(told[:n]); (state == "WATCHDOG=1") == alive {
			return state
		}
	}
}

// TestTheServiceManagerIsTold plays systemd to a relay: it is told when pushes are taken, that the
// process lives, of reloads, and when it stops.
func TestTheServiceManagerIsTold(t *testing.T) {
	dir := t.TempDir()
	manager := newManager(t)
	file := filepath.Join(dir, "relay.yaml")
	write := func(more string) {
		require.NoError(t, os.WriteFile(file, []byte(`
data_dir: `+filepath.Join(dir, "data")+`
environments: [{project: p, environment: e}]
ingest: {listen: "127.0.0.1:0", anonymous: p/e}
admin: {listen: "127.0.0.1:0"}
`+more), 0o600))
	}
	write("")

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan int, 1)
	var out bytes.Buffer
	go func() { ended <- Program{}.Execute(ctx, []string{"run", "--config", file}, &out, &out) }()
	assert.Equal(t, "READY=1", manager.next(false))
	manager.next(true)

	reload := func(more string) (status string) {
		t.Helper()
		write(more)
		before := monotonicMicros()
		require.NoError(t, syscall.Kill(os.Getpid(), syscall.SIGHUP))
		begun := manager.next(false)
		at, found := strings.CutPrefix(begun, "RELOADING=1\nMONOTONIC_USEC=")
		require.True(t, found, "both stand in one datagram: %q", begun)
		began, err := strconv.ParseInt(at, 10, 64)
		require.NoError(t, err)
		assert.GreaterOrEqual(t, began, before)
		assert.LessOrEqual(t, began, monotonicMicros())
		status, found = strings.CutPrefix(manager.next(false), "READY=1\nSTATUS=")
		require.True(t, found)
		assert.NotContains(t, status, "\n", "it would be a state of its own")
		return status
	}
	assert.Equal(t, "The configuration was reloaded.", reload("log: {level: debug}\n"))
	refused := reload("log: {level: loud}\nshutdown_timeout: soon\n")
	assert.Contains(t, refused, "The reload was refused: ")
	assert.Contains(t, refused, "log.level")
	assert.Contains(t, refused, "shutdown_timeout")
	assert.Contains(t, reload("journal: {max_bytes: 1GiB}\n"), "journal.max_bytes")
	assert.Equal(t, "The configuration was reloaded.", reload(""))
	cancel()
	assert.Equal(t, "STOPPING=1", manager.next(false))
	assert.Equal(t, ExitOK, <-ended, out.String())
	assert.NotContains(t, out.String(), "service manager")
}

// TestAnotherProcessIsWatched: the watchdog of a parent is not this process's.
func TestAnotherProcessIsWatched(t *testing.T) {
	t.Setenv("WATCHDOG_USEC", "20000")
	for pid, want := range map[string]time.Duration{"": 20 * time.Millisecond, fmt.Sprint(os.Getpid()): 20 * time.Millisecond, "1": 0} {
		t.Setenv("WATCHDOG_PID", pid)
		assert.Equal(t, want, newSupervisor(nil).within, pid)
	}
}
