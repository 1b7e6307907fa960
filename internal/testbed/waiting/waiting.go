// Package waiting lets a test wait as long as there is progress. A slow machine says
// nothing about the code, so no wait ends because of its length alone: it ends when
// nothing has moved for a long stretch.
package waiting

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/auditrelay/auditrelay/internal/retry"
)

// Stall is the longest wait without any movement.
const Stall = 4 * time.Minute

// The pause between two looks at the condition grows from the first to the second.
const (
	firstPause = time.Millisecond
	lastPause  = 20 * time.Millisecond
)

// Until waits until done reports true, in one step. Over several steps, use [While]. The
// rest is the failure's message: a format and its values.
func Until(t testing.TB, done func() bool, messageAndValues ...any) {
	t.Helper()
	While(t, func() any { return nil }, done, messageAndValues...)
}

// While waits until done reports true, as long as the value of progress changes: a
// count, an offset, or a struct of those.
func While(t testing.TB, progress func() any, done func() bool, messageAndValues ...any) {
	t.Helper()
	if err := For(t.Context(), progress, done); err != nil {
		t.Fatalf("%s: %v", message(messageAndValues), err)
	}
}

// For is While without a test. It also ends with ctx.
func For(ctx context.Context, progress func() any, done func() bool) error {
	last, moved := progress(), time.Now()
	for wait := firstPause; !done(); wait = min(wait+wait/8, lastPause) {
		if now := progress(); now != last {
			last, moved = now, time.Now()
		}
		if time.Since(moved) > Stall {
			return fmt.Errorf("nothing has moved for %v; the last progress seen is %+v", Stall, last)
		}
		if retry.Sleep(ctx, wait) != nil {
			return fmt.Errorf("wait, with the last progress at %+v: %w", last, context.Cause(ctx))
		}
	}
	return nil
}

func message(formatAndValues []any) string {
	if len(formatAndValues) == 0 {
		return "the condition is never met"
	}
	format, ok := formatAndValues[0].(string)
	if !ok {
		return fmt.Sprint(formatAndValues...)
	}
	return fmt.Sprintf(format, formatAndValues[1:]...)
}
