package retry

import (
	"context"
	"log/slog"
	"time"
)

// Sleep waits for d. Where ctx ends first, it returns ctx's error.
func Sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

const (
	// firstPause and longestPause bound the waits of [Insist].
	firstPause   = 100 * time.Millisecond
	longestPause = 10 * time.Second
)

// Insist calls do until it succeeds, with growing pauses. It ends with do's error where ctx
// has ended or isFinal says so. The first failure is logged.
func Insist(ctx context.Context, log *slog.Logger, what string, isFinal func(error) bool, do func() error) error {
	for wait := firstPause; ; wait = min(2*wait, longestPause) {
		err := do()
		if err == nil || ctx.Err() != nil || isFinal(err) {
			return err
		}
		if wait == firstPause {
			log.Error(what+" failed; it is tried again until it succeeds", "error", err)
		}
		if err := Sleep(ctx, wait); err != nil {
			return err
		}
	}
}
