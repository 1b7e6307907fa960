// Package file delivers events to a file of JSON lines. Each is a CloudEvent in the JSON event
// format 1.0.2, or only an event's body. The package starts a new file by size and by time.
package file

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/internal/routing/cloudevents"
	"github.com/auditrelay/auditrelay/internal/store/durable"
	"github.com/auditrelay/auditrelay/relay"
)

// Sink appends to a file. It implements relay.Sink.
//
// A delivery is one write and one fsync; nil means that both are done (without the fsync if so
// configured). The bytes of a failed delivery are cut off again, and a line that was torn by a
// crash is cut off at the next opening, so every line with a newline is whole. An event is in
// the file twice only if an error or a crash came between the write and the acknowledgement;
// its id and source are the same.
//
// A line's "data" holds the body byte for byte if that is possible on one line: if it is JSON
// without line breaks, without space around it, and nested at most 512 deep. If its content
// type is not JSON, the body is a JSON string in "data", provided that it is valid UTF-8. Every
// other body is in "data_base64".
//
// The file is at most RotateBytes long, unless a single delivery is longer. It is also rotated
// when a period of RotateEvery ends; the periods are counted in UTC, so that 24h ends at
// midnight. If something else moves or removes the file, the next delivery starts a new one.
//
// With Gzip, rotated files are compressed in the background, one at a time. A file is never
// missing meanwhile, and stays as it is if its compression fails.
//
// Deliver heeds its context before it writes; a write or fsync that hangs cannot be given up.
type Sink struct {
	cfg        config.File
	opts       Options
	disk       disk
	compressor *compressor // nil if rotated files stay as they are

	names sync.Mutex // held where archives get their names or lose them; taken after mu

	mu     sync.Mutex // guards the fields below
	json   cloudevents.Encoder
	closed bool
	swept  bool      // what earlier compressions left has been removed
	file   *os.File  // nil if it has to be opened
	size   int64     // acknowledged bytes, which is the file's size between deliveries
	period time.Time // the start of the last write's period
	buf    []byte
}

// disk holds what tests can make fail.
type disk struct {
	write   func(*os.File, []byte) (int, error)
	sync    func(*os.File) error
	rename  func(from, to string) error
	remove  func(name string) error
	syncDir func(dir string) error
	free    func(dir string) (uint64, error) // in bytes
}

func realDisk() disk {
	return disk{write: (*os.File).Write, sync: (*os.File).Sync, rename: os.Rename, remove: os.Remove, syncDir: durable.SyncDir, free: freeSpace}
}

// Options are what a sink is given besides its section; all may be left out.
type Options struct {
	// Logger is told of rotations and repairs.
	Logger *slog.Logger
	// Bodies makes each line only an event's body, without an envelope; bodies must contain no
	// line end. BodyStart is how each such line begins, including those written before Bodies
	// was changed. It tells a torn line of ours from somebody else's.
	Bodies    bool
	BodyStart string
}

// keptBuffer is the size of the largest buffer that is kept from one delivery to the next.
const keptBuffer = 16 << 20

var errClosed = errors.New("the sink is closed")

// New makes a sink from a complete section (see config.Sink.Complete). It opens the file at the
// first delivery, so a failure is an error of Deliver.
func New(cfg config.File, opts Options) *Sink {
	cfg.Path = filepath.Clean(cfg.Path)
	opts.Logger = cmp.Or(opts.Logger, slog.New(slog.DiscardHandler))
	s := &Sink{cfg: cfg, opts: opts, disk: realDisk()}
	if cfg.Gzip {
		s.compressor = newCompressor(s)
	}
	return s
}

// Deliver implements relay.Sink. No error of a file is permanent, since space and permissions
// can come back.
func (s *Sink) Deliver(ctx context.Context, events []relay.Event) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return errClosed
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	s.buf = s.buf[:0]
	for i := range events {
		s.buf = s.appendLine(s.buf, &events[i])
	}
	defer s.shrink()
	if err := s.ready(int64(len(s.buf))); err != nil {
		return err
	}
	return s.append(s.buf)
}

// ready opens the file, or a new one, so that n more bytes can be written.
func (s *Sink) ready(n int64) error {
	if err := s.follow(); err != nil {
		return err
	}
	period := s.periodOf(time.Now())
	full := s.cfg.RotateBytes > 0 && s.size+n > int64(s.cfg.RotateBytes)
	if s.size > 0 && (full || period.After(s.period)) {
		if err := s.rotate(); err != nil {
			return err
		}
	}
	s.period = period
	return nil
}

func (s *Sink) periodOf(t time.Time) time.Time {
	if s.cfg.RotateEvery <= 0 {
		return time.Time{}
	}
	return t.UTC().Truncate(s.cfg.RotateEvery)
}

// append writes b and syncs it, or leaves the file as it was.
//
// A crash during this leaves some of b's lines, and maybe a torn one, after the acknowledged
// ones. open cuts the torn one off, and the pump delivers all of b again.
func (s *Sink) append(b []byte) error {
	_, err := s.disk.write(s.file, b)
	if err == nil && !s.cfg.NoSync {
		err = s.disk.sync(s.file)
	}
	if err == nil {
		s.size += int64(len(b))
		return nil
	}
	// After a failed fsync the system may regard its unwritten pages as written, so only bytes
	// that are written again can be trusted. The bytes are therefore cut off, and the file is
	// opened again.
	if cut := s.file.Truncate(s.size); cut != nil {
		err = errors.Join(err, fmt.Errorf("cut off the partly written events: %w", cut))
	}
	s.release()
	return fmt.Errorf("append %d bytes: %w", len(b), err)
}

// shrink drops the buffer of a very large delivery.
func (s *Sink) shrink() {
	if cap(s.buf) > keptBuffer {
		s.buf = nil
	}
}

// release closes the file, which the next delivery opens again.
func (s *Sink) release() {
	if s.file != nil {
		_ = s.file.Close() // everything acknowledged is synced
		s.file = nil
	}
}

// Close implements relay.Sink. It waits for a delivery that is under way, and gives up a
// compression, which the next start repeats.
func (s *Sink) Close() error {
	err := s.closeFile()
	if s.compressor != nil {
		s.compressor.close()
	}
	return err
}

func (s *Sink) closeFile() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	if s.file == nil {
		return nil
	}
	err := s.disk.sync(s.file)
	s.release()
	if err != nil {
		return fmt.Errorf("sync %s: %w", s.cfg.Path, err)
	}
	return nil
}
