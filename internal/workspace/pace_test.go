package workspace

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/config"
)

// TestARevokedKey is one log line and one entry, and so is its end, however many looks
// there are meanwhile.
func TestARevokedKey(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		space, trail := newWorkspace(), &memoryTrail{}
		var logs bytes.Buffer
		o := space.options(t, trail, "live", "test")
		o.Logger = slog.New(slog.NewTextHandler(&logs, &slog.HandlerOptions{Level: slog.LevelWarn}))
		o.Interval = time.Minute
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go FollowReach(ctx, o.Client, trail, o.Logger)
		w := NewWatcher(o)
		go w.Run(ctx)
		time.Sleep(time.Second)
		synctest.Wait()
		entered := len(trail.entries)
		space.refuse(401)
		time.Sleep(10 * time.Hour)
		synctest.Wait()
		lines, again := strings.Count(logs.String(), "\n"), strings.Count(logs.String(), "failing_for=")
		require.Equal(t, 1, lines-again, logs.String())
		require.Equal(t, 4+9, again, "after 1, 4, 13 and 40 minutes, and each hour")
		require.Contains(t, logs.String(), "check workspace.key_id")
		require.Len(t, trail.entries, entered+1)
		require.Contains(t, string(trail.of(TypeUnreachable)[0].Detail), `"cause":"unauthorized"`)
		for _, s := range w.Status() {
			require.Contains(t, s.Error, "unauthorized")
		}
		require.Less(t, space.since(), 150, "questions in ten hours")

		go FollowReach(ctx, o.Client, trail, slog.New(slog.DiscardHandler)) // as after a restart
		space.refuse(0)
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		require.Len(t, trail.of(TypeReachable), 1)
		require.Len(t, trail.entries, entered+2)
		for _, s := range w.Status() {
			require.Empty(t, s.Error)
		}
		cancel()
		synctest.Wait()
	})
}

// TestIntervals: each kind has its own, and the looks of 100 environments keep to them
// at 20 requests a second.
func TestIntervals(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		space, trail := newWorkspace(), &memoryTrail{}
		var logs bytes.Buffer
		o := space.options(t, trail)
		o.Logger = slog.New(slog.NewTextHandler(&logs, &slog.HandlerOptions{Level: slog.LevelWarn}))
		o.Client = space.clientWith(t, 20)
		for i := range 100 {
			project := fmt.Sprint("p", i/2)
			o.Environments = append(o.Environments, config.Environment{Project: project, Environment: fmt.Sprint("e", i)})
			space.fill(project, fmt.Sprint("e", i))
		}
		o.Interval = time.Minute
		o.Intervals = map[Kind]time.Duration{DefaultEmailTemplates: 5 * time.Minute, EmailTemplates: 5 * time.Minute}
		ctx, cancel := context.WithCancel(t.Context())
		go NewWatcher(o).Run(ctx)
		time.Sleep(5 * time.Minute)
		space.since()
		time.Sleep(30 * time.Minute)
		requests := space.since()
		// By the minute 100 x 4 settings of environments and 50 projects; by five minutes the
		// templates, and the default of each of the nine types.
		require.InDelta(t, 30*(400+50)+6*50*(1+9), requests, 300)
		require.Less(t, requests, 30*60*20)
		cancel()
		synctest.Wait()
		require.Empty(t, logs.String())
	})
}

// TestLateLooksAreTold: at one request a second the same takes ten minutes.
func TestLateLooksAreTold(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		space, trail := newWorkspace(), &memoryTrail{}
		var logs bytes.Buffer
		o := space.options(t, trail, "live", "test")
		o.Logger = slog.New(slog.NewTextHandler(&logs, &slog.HandlerOptions{Level: slog.LevelWarn}))
		o.Client, o.Interval = space.clientWith(t, 1), 5*time.Second
		ctx, cancel := context.WithCancel(t.Context())
		go NewWatcher(o).Run(ctx)
		time.Sleep(5 * time.Minute)
		cancel()
		synctest.Wait()
		require.Equal(t, 1, strings.Count(logs.String(), "\n"), logs.String())
		require.Contains(t, logs.String(), "raise workspace.requests_per_second")
	})
}
