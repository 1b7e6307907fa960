package cli

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/internal/testbed/waiting"
)

// TestTheServiceManagerIsTold plays systemd to a relay: it is told when pushes are taken, that the
// process lives, and when it stops.
func TestTheServiceManagerIsTold(t *testing.T) {
	dir := t.TempDir()
	socket := filepath.Join(dir, "notify")
	manager, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: socket, Net: "unixgram"})
	require.NoError(t, err)
	t.Cleanup(func() { _ = manager.Close() })
	t.Setenv("NOTIFY_SOCKET", socket)
	t.Setenv("WATCHDOG_USEC", "20000")
	t.Setenv("WATCHDOG_PID", fmt.Sprint(os.Getpid()))
	config := filepath.Join(dir, "relay.yaml")
	require.NoError(t, os.WriteFile(config, []byte(`
data_dir: `+filepath.Join(dir, "data")+`
environments: [{project: p, environment: e}]
ingest: {listen: "127.0.0.1:0", anonymous: p/e}
admin: {listen: "127.0.0.1:0"}
`), 0o600))

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan int, 1)
	var out bytes.Buffer
	go func() { ended <- Program{}.Execute(ctx, []string{"run", "--config", config}, &out, &out) }()
	until := func(state string) {
		t.Helper()
		require.NoError(t, manager.SetReadDeadline(time.Now().Add(waiting.Stall)))
		for told := make([]byte, 100); ; {
			n, err := manager.Read(told)
			require.NoError(t, err, "nobody said %s", state)
			if string(told[:n]) == state {
				return
			}
		}
	}
	until("READY=1")
	until("WATCHDOG=1")
	cancel()
	until("STOPPING=1")
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
