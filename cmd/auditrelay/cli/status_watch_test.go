package cli

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
	"golang.org/x/term"

	"github.com/auditrelay/auditrelay/internal/control/console"
	"github.com/auditrelay/auditrelay/internal/testbed/waiting"
	"github.com/auditrelay/auditrelay/relay"
)

// terminal is a pseudo terminal, and all that was written to it.
type terminal struct {
	keyboard, tty *os.File

	mu    sync.Mutex
	shown strings.Builder // guarded by mu
}

func newTerminal(t *testing.T, columns, rows uint16) *terminal {
	t.Helper()
	keyboard, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("this machine has no pseudo terminals: %v", err)
	}
	require.NoError(t, unix.IoctlSetPointerInt(int(keyboard.Fd()), unix.TIOCSPTLCK, 0))
	n, err := unix.IoctlGetInt(int(keyboard.Fd()), unix.TIOCGPTN)
	require.NoError(t, err)
	require.NoError(t, unix.IoctlSetWinsize(int(keyboard.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Col: columns, Row: rows}))
	tty, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	require.NoError(t, err)
	x := &terminal{keyboard: keyboard, tty: tty}
	t.Cleanup(func() { _, _ = tty.Close(), keyboard.Close() })
	go func() {
		buf := make([]byte, 32<<10)
		for {
			n, err := keyboard.Read(buf)
			if err != nil {
				return
			}
			x.mu.Lock()
			x.shown.Write(buf[:n])
			x.mu.Unlock()
		}
	}()
	return x
}

func (x *terminal) text() string {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.shown.String()
}

// The screen follows the relay, also over an absence, fits the terminal, and leaves the
// terminal as it was.
func TestWatch(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var answer atomic.Pointer[map[string]any]
	sections := map[string]any{}
	for name, raw := range statusOf(t, "well") {
		sections[name] = raw
	}
	answer.Store(&sections)
	serve := func() (stop func()) {
		server, err := console.Listen(t.Context(), dir, console.Options{
			Logger: slog.New(slog.DiscardHandler), Status: func(context.Context, ...string) map[string]any { return maps.Clone(*answer.Load()) },
		}, func(err error) { t.Error(err) })
		require.NoError(t, err)
		return func() { assert.NoError(t, server.Close(context.Background())) }
	}
	stop := serve()
	x := newTerminal(t, 80, 12)
	before, err := unix.IoctlGetTermios(int(x.tty.Fd()), unix.TCGETS)
	require.NoError(t, err)
	w := watcher{client: console.NewClient(dir), out: x.tty, keys: x.tty, brush: brush{}, interval: 10 * time.Millisecond}
	ended := make(chan error, 1)
	go func() { ended <- w.run(t.Context()) }()
	shows := func(text string) {
		t.Helper()
		from := len(x.text())
		waiting.Until(t, func() bool { return strings.Contains(x.text()[from:], text) }, "the screen does not show %q", text)
	}
	shows("ALL WELL: 1 environment flows")
	shows("there is more below: enlarge the terminal; q ends")
	changed := maps.Clone(sections)
	changed["sinks"] = []console.Sink{{Name: "kafka", Configured: true, Delivery: &relay.Delivery{FailingSince: time.Unix(1772619123, 0)}}}
	answer.Store(&changed)
	shows("TROUBLE: sink kafka fails")
	stop()
	shows("THE RELAY CANNOT BE ASKED: since ")
	stop = serve()
	defer stop()
	shows("TROUBLE: sink kafka fails")
	_, err = x.keyboard.WriteString("q")
	require.NoError(t, err)
	require.NoError(t, <-ended)
	waiting.Until(t, func() bool { return strings.HasSuffix(x.text(), screenEnd) })
	after, err := unix.IoctlGetTermios(int(x.tty.Fd()), unix.TCGETS)
	require.NoError(t, err)
	assert.Equal(t, before, after)
	for _, drawn := range strings.Split(x.text(), screenHold)[1:] {
		assert.LessOrEqual(t, strings.Count(drawn, "\n"), 11, "it scrolls: %q", drawn)
	}
	assert.True(t, term.IsTerminal(int(x.tty.Fd())))
}

// A relay that never answered is an error, and the terminal is left alone.
func TestWatchWithoutARelay(t *testing.T) {
	t.Parallel()
	x := newTerminal(t, 80, 24)
	w := watcher{client: console.NewClient(t.TempDir()), out: x.tty, keys: x.tty, interval: time.Second}
	require.ErrorContains(t, w.run(t.Context()), "no relay runs on the data directory")
	assert.Empty(t, x.text())
}
