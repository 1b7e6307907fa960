package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/auditrelay/auditrelay/internal/control/console"
	"github.com/auditrelay/auditrelay/internal/retry"
	"github.com/auditrelay/auditrelay/internal/trail/timeline"
)

const (
	// firstPause is the wait after the relay is lost; it doubles up to longestPause.
	firstPause   = 100 * time.Millisecond
	longestPause = 30 * time.Second
)

// follower lists entries as they come, also across absences of the relay or its cluster.
type follower struct {
	source trailSource
	list   *rowList
	told   io.Writer // of absences: one line at the beginning of each, and one at the end

	next    *int64        // the first entry not listed yet; nil before the first answer
	pause   time.Duration // before the next attempt; 0: the relay is not away
	printed error         // of the list
}

// run follows until ctx ends, or the rows cannot be printed. Without any answer of the
// relay, it is an error.
func (f *follower) run(ctx context.Context, filter timeline.Filter) error {
	for ctx.Err() == nil {
		err := f.source.List(ctx, console.ListTrail{Filter: filter, Follow: true, From: f.next, Following: f.following}, f.row)
		switch {
		case f.printed != nil:
			return f.printed
		case ctx.Err() != nil: // the end
		case f.next == nil:
			return err
		default:
			f.lost(err)
			_ = retry.Sleep(ctx, f.pause) // the end of ctx ends the loop too
		}
	}
	return nil
}

func (f *follower) row(r timeline.Row) error {
	if f.printed = f.list.add(r); f.printed != nil {
		return f.printed
	}
	f.next = new(r.Index + 1)
	return nil
}

// following begins or goes on.
func (f *follower) following(next int64) {
	if f.next = &next; f.pause > 0 {
		f.pause = 0
		_, _ = fmt.Fprintln(f.told, "the relay answers again")
	}
}

func (f *follower) lost(err error) {
	if f.pause == 0 {
		if err == nil {
			err = errors.New("it ended its answer")
		}
		_, _ = fmt.Fprintln(f.told, "the relay cannot be followed; trying again until it can (Ctrl-C ends): "+printable(err.Error()))
	}
	f.pause = min(max(firstPause, 2*f.pause), longestPause)
}
