package main

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/internal/testbed/waiting"
)

// A relay replaces itself while it is asked for reloads all the time. A SIGHUP may come at any
// moment between the end of one program and the start of the next, and ends neither.
func TestHangupsDuringUpgrades(t *testing.T) {
	t.Parallel()
	r := startWithDescriptors(t, 1024)
	enough, over := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(over)
		for ticks := time.NewTicker(time.Millisecond); ; {
			select {
			case <-enough:
				ticks.Stop()
				return
			case <-ticks.C:
				_ = r.process.Signal(syscall.SIGHUP) // the test sees when the process has ended
			}
		}
	}()
	for range 3 {
		r.upgrade(t)
	}
	close(enough)
	<-over
	_, err := r.push()
	require.NoError(t, err)
}

// upgrade has the relay replace itself.
func (r *limited) upgrade(t *testing.T) {
	t.Helper()
	starts := func() int { return strings.Count(r.said(), `msg="relay is running"`) }
	before := starts()
	require.NoError(t, r.process.Signal(syscall.SIGUSR2))
	waiting.Until(t, func() bool {
		select {
		case <-r.ended:
			require.Fail(t, "the process has ended", r.said())
		default:
		}
		return starts() > before
	})
}

// A relay that cannot stop as it should, here since its trail cannot be signed, is replaced all the
// same: without a successor nobody would take pushes.
func TestAnUpgradeWithAStopThatFails(t *testing.T) {
	t.Parallel()
	r := startWithDescriptors(t, 1024)
	pin := filepath.Join(r.dir, "data", "audit.key.checkpoint")
	waiting.Until(t, func() bool { _, err := os.Stat(pin); return err == nil })
	waiting.Until(t, func() bool { // the relay may write it again in between
		_ = os.Remove(pin)
		return os.MkdirAll(filepath.Join(pin, "in the way"), 0o700) == nil
	})
	r.upgrade(t)
	assert.Contains(t, r.said(), "it is replaced all the same")
	code, err := r.push()
	require.NoError(t, err)
	assert.Equal(t, http.StatusNoContent, code)
}
