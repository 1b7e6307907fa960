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
	// scrubRate bounds what is read of blocks that nobody waits for, in bytes a second.
	scrubRate = 32 << 20
	// sealInterval is how often blocks are looked for that the server has sealed.
	sealInterval = 250 * time.Millisecond
	// readAhead is how much is verified before the server is asked for a record: more
	// than it may read for one request.
	readAhead = 64 << 20
)

// errRotten ends an epoch: a block has to be mended, which no server may have open.
var errRotten = errors.New("a block of the journal is damaged; it is mended under a new server")

// scrub reads the blocks of the events' stream that the start took on trust, and
// notes the blocks that the server seals.
//
// The server reads a block when it is asked for one of its records. One flipped bit
// in a record's length has it cut the block off there. So a block is verified before
// anybody asks: by who is about to, or else in the background.
type scrub struct {
	dir    string // of the stream
	stream string
	log    *slog.Logger
	mend   func(ctx context.Context) error // mends under a new server
	done   chan struct{}                   // closed when run has ended

	unread atomic.Int64 // bytes of pending

	checking sync.Mutex // held by who reads a block
	checker  blockfile.Checker

	mu      sync.Mutex
	notes   *notes              // guarded by mu
	pending []*trusted          // the lowest sequences first; guarded by mu
	seen    map[uint32]identity // the blocks that this process has verified; guarded by mu
	unfit   map[uint32]bool     // sealed blocks of which there can be no note; run's own
}

// trusted is a block that the start has not read.
type trusted struct {
	note
	path string
	turn sync.Mutex // held by who reads it
	done bool       // guarded by turn
}

func newScrub(s *Server) *scrub {
	stream := s.dir.layout.Events
	return &scrub{
		dir: s.dir.streamDir(stream), stream: stream, log: s.log, mend: s.mendNow,
		done: make(chan struct{}), seen: map[uint32]identity{}, unfit: map[uint32]bool{},
	}
}

// trust has the blocks verified that a start took on trust, except those that this
// process has verified before.
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

// verify reads a block. A damaged one is mended when it returns, under a new server.
func (s *scrub) verify(ctx context.Context, b *trusted) error {
	b.turn.Lock()
	defer b.turn.Unlock()
	if b.done {
		return nil
	}
	if now, err := identify(b.path); err == nil && now == b.identity { // else it was trimmed, or the server wrote it anew
		found, err := s.check(b.path)
		switch {
		case errors.Is(err, fs.ErrNotExist): // trimmed meanwhile
		case err != nil:
			return err
		case !found.Sound:
			return s.rotten(ctx, b)
		}
	}
	b.done = true
	s.settle(b)
	return nil
}

// rotten has a damaged block mended. A crash behind the drop has the next start mend it.
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

// settle takes a block that is verified, or gone, off the list.
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

// rest gives the memory back.
func (s *scrub) rest() {
	s.checking.Lock()
	defer s.checking.Unlock()
	s.checker = blockfile.Checker{}
}

// run notes what the server seals, and scrubs at a bounded rate, until ctx ends.
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
			s.log.Warn("verifying the journal's blocks failed; it is tried again, and the next start reads what is not verified", "error", err)
		}
		if failing = err != nil; failing {
			rest = time.Second
		}
		if pause.For(ctx, rest) != nil {
			return
		}
	}
}

// noteSealed notes the blocks that the server writes to no more, and returns how many
// it has read.
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

// noteBlock reads a sealed block, and notes it where it is sound. Damage is left to
// the next start, or to who reads the records: the server has read this block before.
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
	if err != nil {
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
