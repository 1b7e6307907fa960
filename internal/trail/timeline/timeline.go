// Package timeline makes the audit trail readable: an index of its entries, and the
// states of the settings at any time.
//
// # The index
//
// An [Index] has a row of 32 bytes in memory for each entry of the trail, 8 bytes by which a
// search passes over most sentences, and the entry's sentence in a file. Each start
// makes it from the trail, which takes up to 45 s for a million entries; until then questions wait,
// and nothing else does. The index is for lists. Whole entries and states are read from the trail.
//
// # States
//
// The trail knows the setting as seen at its looks. Between two looks with different
// states lies a window, and at a time within it the setting had one of the two.
// [Index.At] then gives both, with the window.
package timeline

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/auditrelay/auditrelay/internal/retry"
	"github.com/auditrelay/auditrelay/internal/trail/audit"
)

// Trail is an [audit.Trail], as far as an index needs one.
type Trail interface {
	// Get returns one entry; audit.ErrMissing says there is none.
	Get(ctx context.Context, index int64) (audit.Recorded, error)
	// Tail calls handle with each readable entry from index from on, and caughtUp
	// whenever it has come to the end, with the number of entries, until ctx ends.
	Tail(ctx context.Context, from int64, handle func(audit.Recorded) error, caughtUp func(end int64) error) error
	// Size is the number of known entries.
	Size() int64
}

// FileName is the index's, in a data directory. It is of use to the running process only.
const FileName = "trail.index"

// Options say where an index is kept.
type Options struct {
	// Path is the index's file. Its folder must exist.
	Path string
	// Trail has the entries.
	Trail Trail
	// Looked gives the begin of a running relay's newest look at a setting, and the hash of
	// the state it saw; the zero time if there was none. Nil: only the trail is known.
	Looked func(Where) (began time.Time, sha256 string)
	// Logger may be nil.
	Logger *slog.Logger
}

// Index finds entries. Its methods may be called concurrently.
type Index struct {
	path   string
	trail  Trail
	looked func(Where) (time.Time, string) // nil: only the trail is known
	log    *slog.Logger

	// The keeper's, who runs Keep.
	pending []line // not in the file yet
	next    int64  // the index after pending

	mu      sync.RWMutex // guards the fields below; the keeper alone writes them
	file    *os.File
	end     int64 // of the sentences in the file
	rows    table
	reached int64         // entries looked at; -1 before the trail's end was reached once
	err     error         // why the keeper cannot go on at present
	changed chan struct{} // closed and replaced at each change of these
}

const (
	// batchRows bounds the rows of one write, and so the keeper's memory.
	batchRows = 4096
	// retryPause is the wait after a failure of the trail's servers, or of the disk.
	retryPause = 2 * time.Second
)

// Open makes an index; [Index.Keep] fills it.
func Open(o Options) *Index {
	log := cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	return &Index{path: o.Path, trail: o.Trail, looked: o.Looked, log: log, reached: -1, changed: make(chan struct{})}
}

// Keep makes the index, and keeps it up with the trail until ctx ends. Failures are tried again,
// and logged now and then.
func (x *Index) Keep(ctx context.Context) {
	defer x.closeFile()
	var failing retry.Failure
	for ctx.Err() == nil {
		err := x.keep(ctx, func() { failing.Over() })
		if ctx.Err() != nil {
			return
		}
		x.stand(-1, err)
		if !errors.Is(err, audit.ErrUnavailable) && failing.Again("") {
			x.log.Warn("the index of the audit trail falls behind; it is tried again", append(failing.Fields(), "error", err)...)
		}
		_ = retry.Sleep(ctx, retryPause)
	}
}

// keep follows the trail until something fails.
func (x *Index) keep(ctx context.Context, worked func()) error {
	if err := x.create(); err != nil {
		return err
	}
	return x.trail.Tail(ctx, x.next, x.take, func(end int64) error {
		if err := x.flush(); err != nil {
			return err
		}
		worked()
		x.stand(end, nil)
		return nil
	})
}

// take adds the row of an entry, and rows for the missing ones before it.
func (x *Index) take(e audit.Recorded) error {
	if e.Index < x.next {
		return nil // a repetition
	}
	for ; x.next < e.Index; x.next++ {
		x.pending = append(x.pending, line{flags: isMissing})
	}
	x.pending = append(x.pending, lineOf(e))
	x.next = e.Index + 1
	if len(x.pending) < batchRows {
		return nil
	}
	return x.flush()
}

// stand tells how far the keeper has come, or why it cannot go on.
func (x *Index) stand(reached int64, err error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.reached, x.err = reached, err
	x.tell()
}

// tell wakes all who wait. It needs mu.
func (x *Index) tell() {
	close(x.changed)
	x.changed = make(chan struct{})
}

// Ready waits until the index has all entries there are now.
func (x *Index) Ready(ctx context.Context) error {
	least := x.trail.Size()
	return x.until(ctx, func() bool { return x.reached >= least })
}

// until waits until is holds, which is asked with mu held.
func (x *Index) until(ctx context.Context, is func() bool) error {
	for {
		x.mu.RLock()
		done, err, changed := is(), x.err, x.changed
		x.mu.RUnlock()
		switch {
		case done:
			return nil
		case err != nil:
			return fmt.Errorf("the index of the audit trail cannot be used at present: %w", err)
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("wait for the index of the audit trail: %w", ctx.Err())
		}
	}
}
