package datadir

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/auditrelay/auditrelay/internal/datadir/blockfile"
	"github.com/auditrelay/auditrelay/internal/pause"
)

const (
	// scrubRate bounds the reading of blocks nobody waits for, in bytes a second.
	scrubRate = 32 << 20
	// sealInterval is the time between two looks for newly sealed blocks.
	sealInterval = 250 * time.Millisecond
	// readAhead bytes are verified before a request to the server for a record: more than
	// it may read for one.
	readAhead = 64 << 20
)

// errRotten ends an epoch: a block needs mending, and no server may have it open then.
var errRotten = errors.New("a block of the journal is damaged; it is mended under a new server")

// scrub reads the blocks of the events' stream taken on trust by the start, and notes the
// blocks the server seals.
//
// The server reads a block at the first request for one of its records. Because of one
// flipped bit in a record's length, it would cut the block off there. So each block is
// verified before such a request: by the reader about to make it, or else in the
// background.
type scrub struct {
	dir    string // of the stream
	stream string
	log    *slog.Logger
	mend   func(ctx context.Context) error // mends under a new server
	done   chan struct{}                   // closed when run has ended

	unread atomic.Int64 // bytes of pending

	checking sync.Mutex // held while reading a block
	checker  blockfile.Checker

	mu      sync.Mutex
	notes   *notes              // guarded by mu
	pending []*trusted          // the lowest sequences first; guarded by mu
	seen    map[uint32]identity // blocks verified by this process; guarded by mu
	unfit   map[uint32]bool     // sealed blocks without a possible note; run's own
}

// trusted is a block the start has not read.
type trusted struct {
	note
	path string
	turn sync.Mutex // held while reading it
	done bool       // guarded by turn
}

func newScrub(s *Server) *scrub {
	stream := s.dir.layout.Events
	return &scrub{
		dir: s.dir.streamDir(stream), stream: stream, log: s.log, mend: s.mendNow,
		done: make(chan struct{}), seen: map[uint32]identity{}, unfit: map[uint32]bool{},
	}
}

// trust queues the blocks a start took on trust, except those this process has already
// verified.
func (s *scrub) trust(known *notes, blocks []*trusted) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.notes = known
	s.pending = slices.DeleteFunc(blocks, func(b *trusted) bool { return s.seen[b.Index] == b.identity })
	var unread int64
	for _, b := range s.pending {
		unread += b.Size
	}
	s.unread.Store(unread)
}

// first is the first pending block that ends at or behind a sequence, or nil.
func (s *scrub) first(from uint64) *trusted {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, b := range s.pending {
		if b.Last >= from {
			return b
		}
	}
	return nil
}

// before is [Server.Verified].
func (s *scrub) before(ctx context.Context, from uint64, ahead bool) (through uint64, err error) {
	for read := int64(0); s.unread.Load() > 0; {
		b := s.first(from)
		if b == nil {
			break
		}
		if read >= readAhead || !ahead && b.First > from {
			return max(through, from), nil
		}
		if err := s.verify(ctx, b); err != nil {
			return 0, err
		}
		if read += b.Size; read <= readAhead/2 {
			through = b.Last
		}
	}
	return math.MaxUint64, nil
}

// verify reads a block. If it is damaged, it is mended under a new server before verify
// returns.
func (s *scrub) verify(ctx context.Context, b *trusted) error {
	b.turn.Lock()
	defer b.turn.Unlock()
	if b.done {
		return nil
	}
	if now, err := identify(b.path); err == nil && now == b.identity { // else it was trimmed, or rewritten by the server
		found, err := s.check(b.path)
		switch {
		case errors.Is(err, fs.ErrNotExist): // trimmed meanwhile
		case err != nil && !errors.Is(err, blockfile.ErrUnreadable):
			return err
		case !found.Sound:
			return s.rotten(ctx, b)
		}
	}
	b.done = true
	s.settle(b)
	return nil
}

// rotten has a damaged block mended. After a crash behind the drop, the next start mends
// it.
func (s *scrub) rotten(ctx context.Context, b *trusted) error {
	s.log.Error("a block of the journal was damaged since it was verified; the server is started anew to mend it", "file", b.path)
	if err := s.known().drop(b.Index); err != nil {
		return err
	}
	if err := s.mend(ctx); err != nil {
		return err
	}
	b.done = true
	return nil
}

func (s *scrub) known() *notes {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.notes
}

// settle removes a verified or trimmed block from the list.
func (s *scrub) settle(b *trusted) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen[b.Index] = b.identity
	if i := slices.Index(s.pending, b); i >= 0 {
		s.pending = slices.Delete(s.pending, i, i+1)
		s.unread.Add(-b.Size)
	}
}

func isDamaged(f blockfile.Frame) bool { return f.Kind == blockfile.Damaged }

func (s *scrub) check(path string) (blockfile.Checked, error) {
	s.checking.Lock()
	defer s.checking.Unlock()
	return s.checker.Check(s.stream, path)
}

// rest frees the memory.
func (s *scrub) rest() {
	s.checking.Lock()
	defer s.checking.Unlock()
	s.checker = blockfile.Checker{}
}

// run notes newly sealed blocks, and scrubs at a bounded rate, until ctx ends.
func (s *scrub) run(ctx context.Context) {
	defer close(s.done)
	for failing := false; ; {
		noted, err := s.noteSealed(ctx)
		rest := sealInterval
		switch b := s.first(0); {
		case err != nil:
		case b != nil:
			rest = time.Duration(float64(b.Size) / scrubRate * float64(time.Second))
			err = s.verify(ctx, b)
		case noted == 0:
			s.rest()
		}
		if err != nil && !failing && ctx.Err() == nil {
			s.log.Warn("verifying the journal's blocks failed; trying again; the next start reads the unverified ones", "error", err)
		}
		if failing = err != nil; failing {
			rest = time.Second
		}
		if pause.For(ctx, rest) != nil {
			return
		}
	}
}

// noteSealed notes the sealed blocks, and returns the number of blocks it read.
func (s *scrub) noteSealed(ctx context.Context) (read int, err error) {
	paths, err := blockfile.List(s.dir)
	if err != nil || len(paths) < 2 {
		return 0, err
	}
	oldest, err := blockfile.IndexOf(paths[0])
	if err != nil {
		return 0, err
	}
	known := s.known()
	for _, path := range paths[:len(paths)-1] {
		index, err := blockfile.IndexOf(path)
		if err != nil || known.knows(index) || s.unfit[index] {
			continue
		}
		if err := s.noteBlock(known, path, index); err != nil || ctx.Err() != nil {
			return read, err
		}
		read++
	}
	return read, known.trim(oldest)
}

// noteBlock reads a sealed block, and notes it if it is sound. It leaves damage to the
// next start, or to the records' readers: the server has read this block before.
func (s *scrub) noteBlock(known *notes, path string, index uint32) error {
	as, err := identify(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // trimmed
	}
	if err != nil {
		return fmt.Errorf("look at a sealed block: %w", err)
	}
	found, err := s.check(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil && !errors.Is(err, blockfile.ErrUnreadable) {
		return err
	}
	if !found.Sound || !found.Plain || found.Messages == 0 {
		s.unfit[index] = true
		return nil
	}
	s.mu.Lock()
	s.seen[index] = as
	s.mu.Unlock()
	return known.add(path, note{as, found.Summary})
}

func noneDeleted(uint64) bool { return false }
