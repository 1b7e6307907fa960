package disk

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync"
	"time"

	"github.com/auditrelay/auditrelay/internal/store"
)

const (
	minSegment = 128 << 10
	maxSegment = 64 << 20
	// maxRecord bounds a record's key and data.
	maxRecord = 16 << 20
)

// segmentSize is the size of the log's segments. A single larger record has a segment of
// its own.
func (l *Log) segmentSize() int64 {
	if l.opts.MaxBytes == 0 {
		return maxSegment
	}
	return min(max(l.opts.MaxBytes/32, minSegment), maxSegment)
}

// Log is a log of a [Store].
type Log struct {
	store *Store
	name  string
	dir   string
	opts  store.Options
	log   *slog.Logger

	id     [16]byte
	secret [16]byte

	// turn is held by whoever writes to the log's files, which the fields below describe.
	turn     turn
	f        file      // of the newest segment
	offset   int64     // where it goes on
	size     int64     // its end: what was allocated, or may be written
	poisoned bool      // a write or a sync of it failed, so the next record begins a new one
	untold   bool      // the table was not told of the newest segment or trim
	mark     *slots    // the end mark
	newest   time.Time // of the newest record
	taking   bool      // the records are another store's, and have their times
	files    int       // how many segments were opened or made
	scratch  []byte

	mu       sync.Mutex
	segments []segment     // oldest first; replaced as a whole, in a turn; guarded by mu
	spare    []byte        // memory for the frames of a group; guarded by mu
	first    store.Pos     // the oldest position kept; guarded by mu
	end      store.Pos     // the newest durable one; guarded by mu
	reached  int64         // the end of the newest segment's durable records; guarded by mu
	grown    chan struct{} // closed when end grows, and at Close; guarded by mu
	// doubtful is from which position on nobody knows what was lost before the first segment;
	// 0 if that is known. It is immutable once the log is open.
	doubtful store.Pos
	closed   bool // guarded by mu

	gone
}

var _ store.Log = (*Log)(nil)

// segment is a file of records. It ends where the next one begins: what it holds from
// there on was never confirmed.
type segment struct {
	base store.Pos
	made time.Time // no earlier than any record of an older segment; zero if that is not known
	size int64     // what it takes on disk
	end  int64     // where its last confirmed record ends; 0 for the newest, and if that is not known
	// doubtful is the position from which on its damage may be of records that nobody was told
	// about; 0 if there is none.
	doubtful store.Pos
	seed     uint64
	file     int // tells two files of one name apart
}

func (l *Log) path(base store.Pos) string { return filepath.Join(l.dir, segmentName(base)) }

// MaxRecord implements [store.Log].
func (l *Log) MaxRecord() int {
	if l.opts.MaxBytes == 0 {
		return maxRecord
	}
	return int(min(maxRecord, max(minSegment, l.opts.MaxBytes/4)-dataStart-headSize-sumSize))
}

// State implements [store.Log].
func (l *Log) State(context.Context) (store.State, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return store.State{}, store.ErrClosed
	}
	return store.State{ID: store.ID{Log: l.id}, First: l.first, End: l.end, Bytes: l.bytes()}, nil
}

// bytes is what the segments take. mu is held.
func (l *Log) bytes() (total int64) {
	for _, s := range l.segments {
		total += s.size
	}
	return total
}

// close ends the log after the append that is under way.
func (l *Log) close() error {
	l.turn.end()
	l.mu.Lock()
	l.closed = true
	close(l.grown)
	l.mu.Unlock()
	err := l.mark.close()
	if l.f != nil { // there was room for a segment
		err = errors.Join(err, l.f.Close())
	}
	return err
}

// watch looks whether the files that the log writes to are still those in its folder. Marks
// are made again.
func (l *Log) watch() {
	if !l.turn.tryLock() {
		return // whoever writes finds out
	}
	defer l.turn.unlock()
	if n := len(l.segments); n > 0 && !l.poisoned && !l.store.fs.Same(l.f, l.path(l.segments[n-1].base)) {
		_ = l.lose(l.path(l.segments[n-1].base))
	} else if err := l.mark.check(false); isMissing(err) {
		_ = l.lose(l.dir)
	}
}

// gone says why nothing can be written until the store is opened again: files were removed or
// replaced while they were in use.
type gone struct {
	losing sync.Mutex
	why    error // guarded by losing
}

// lose notes that a file is gone.
func (g *gone) lose(path string) error {
	g.losing.Lock()
	defer g.losing.Unlock()
	if g.why == nil {
		g.why = fmt.Errorf("%w: %s", store.ErrGone, path)
	}
	return g.why
}

func (g *gone) err() error {
	g.losing.Lock()
	defer g.losing.Unlock()
	return g.why
}
