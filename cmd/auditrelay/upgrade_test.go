package main

import (
	"strings"
	"syscall"
	"testing"
	"time"

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
	starts := func() int { return strings.Count(r.said(), `msg="relay is running"`) }
	for range 3 {
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
	close(enough)
	<-over
	_, err := r.push()
	require.NoError(t, err)
}
