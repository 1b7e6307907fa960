package journal

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/cespare/xxhash/v2"
)

// marks are sequences that the relay notes for itself beside the embedded
// server's files, each in a file of its own with a checksum: the newest one
// that was acknowledged to a sender, how far was trimmed, and each sink's position. The
// server keeps no checksum of a position, and after a crash it takes whatever
// its newest block ends with for the stream's end; against the marks it shows
// when either is wrong. And it writes positions some times a second only: after
// a kill a sink goes on from its mark, and gets nothing twice but what was under way.
//
// They are written without a sync: after a kill they are exact, after a power
// loss they may be older than the truth. They are never newer.
//
// Of an external stream there are marks too, on the relay's own disk. They set no
// sink's position forward: such a stream may lose its end and give positions out anew.
//
// Nil marks are empty and keep nothing.
type marks struct {
	dir      string
	log      *slog.Logger
	failures atomic.Uint64 // marks that could not be written

	mu      sync.Mutex
	open    map[string]*mark // guarded by mu
	failing map[string]bool  // the marks whose newest write failed; guarded by mu
}

type mark struct {
	noted
	file *os.File
}

// noted is what a mark says. Its file holds the two and their checksum.
type noted struct {
	value uint64
	// stream tells the stream that the sequence is of, by when it was made; 0 where
	// that does not matter, or was not noted.
	stream int64
}

const (
	notedSize = 24 // bytes
	// oldNotedSize is that of marks which did not note their stream.
	oldNotedSize = 16
)

const (
	markAcknowledged = "acknowledged"
	markTrimmed      = "trimmed"
)

func openMarks(dataDir string, log *slog.Logger) (*marks, error) {
	m := &marks{dir: filepath.Join(dataDir, "marks"), log: log, open: map[string]*mark{}, failing: map[string]bool{}}
	if err := os.MkdirAll(filepath.Join(m.dir, endsDir), 0o700); err != nil {
		return nil, fmt.Errorf("make directory of marks: %w", err)
	}
	return m, nil
}

// read returns a mark, or false where there is no sound one.
func (m *marks) read(name string) (noted, bool) {
	if m == nil {
		return noted{}, false
	}
	data, err := os.ReadFile(filepath.Join(m.dir, name))
	if err != nil || len(data) != notedSize && len(data) != oldNotedSize {
		return noted{}, false
	}
	content, sum := data[:len(data)-8], data[len(data)-8:]
	if binary.LittleEndian.Uint64(sum) != xxhash.Sum64(content) {
		return noted{}, false // a flipped bit could claim that there are positions without end
	}
	n := noted{value: binary.LittleEndian.Uint64(content)}
	if len(data) == notedSize {
		n.stream = int64(binary.LittleEndian.Uint64(content[8:]))
	}
	return n, true
}

// newest is the greatest of all marks: so far the stream has been.
func (m *marks) newest() (value uint64) {
	if m == nil {
		return 0
	}
	files, _ := os.ReadDir(m.dir) // what cannot be read says nothing
	for _, file := range files {
		n, _ := m.read(file.Name())
		value = max(value, n.value)
	}
	return value
}

// endsDir is the folder of the marks that say how far the streams beside the
// events' have come. It is one of its own, as newest reads all marks of the events.
const endsDir = "ends"

// end is the newest position of a stream that is known of, 0 where none is.
func (m *marks) end(stream string) uint64 {
	n, _ := m.read(filepath.Join(endsDir, stream))
	return n.value
}

// lowest is the lowest of the marks of a stream that begin with prefix; 0 where
// there is none.
func (m *marks) lowest(prefix string, stream int64) (value uint64) {
	if m == nil {
		return 0
	}
	files, _ := os.ReadDir(m.dir) // what cannot be read says nothing
	found := false
	for _, file := range files {
		n, ok := m.read(file.Name())
		if !ok || n.stream != stream || !strings.HasPrefix(file.Name(), prefix) {
			continue
		}
		if !found || n.value < value {
			value, found = n.value, true
		}
	}
	return value
}

// raise sets a mark where it is of another stream, or to is greater. A mark that
// cannot be written loses no event: after a kill a sink gets more events twice,
// and the end of a damaged stream is less sure. So it is counted, and logged when
// it begins and when it ends.
func (m *marks) raise(name string, to noted) {
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.told(name, m.write(name, to, false))
}

// lower sets a mark that is greater back: the stream lost what stood there.
func (m *marks) lower(name string, to noted) {
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if at, ok := m.read(name); ok && at.value > to.value {
		m.told(name, m.write(name, to, true))
	}
}

// tell is for what is kept beside the marks, and fails as they do.
func (m *marks) tell(name string, err error) {
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.told(name, err)
}

// told counts a failure, and logs the first. mu is held.
func (m *marks) told(name string, err error) {
	if err != nil {
		m.failures.Add(1)
	}
	switch was := m.failing[name]; {
	case err != nil && !was:
		m.log.Warn("a mark could not be written; should the relay be killed now, sinks may get more events twice", "mark", name, "error", err)
	case err == nil && was:
		m.log.Info("a mark is written again", "mark", name)
	}
	m.failing[name] = err != nil
}

// write sets a mark that is of another stream or lower, or any if down. mu is held.
func (m *marks) write(name string, to noted, down bool) error {
	at := m.open[name]
	if at == nil {
		f, err := os.OpenFile(filepath.Join(m.dir, name), os.O_CREATE|os.O_RDWR, 0o600)
		if err != nil {
			return fmt.Errorf("open mark: %w", err)
		}
		at = &mark{file: f}
		at.noted, _ = m.read(name)
		m.open[name] = at
	}
	if !down && to.value <= at.value && to.stream == at.stream {
		return nil
	}
	var data [notedSize]byte
	binary.LittleEndian.PutUint64(data[:], to.value)
	binary.LittleEndian.PutUint64(data[8:], uint64(to.stream))
	binary.LittleEndian.PutUint64(data[16:], xxhash.Sum64(data[:16]))
	// Some bytes within a page: a kill leaves them whole or not at all.
	if _, err := at.file.WriteAt(data[:], 0); err != nil {
		return fmt.Errorf("write mark: %w", err)
	}
	at.noted = to
	return nil
}

// forget removes a mark: its consumer is to go.
func (m *marks) forget(name string) error {
	if m == nil {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if at := m.open[name]; at != nil {
		_ = at.file.Close() // what it holds is removed
		delete(m.open, name)
	}
	if err := os.Remove(filepath.Join(m.dir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("forget mark: %w", err)
	}
	return nil
}

// close writes the marks to disk.
func (m *marks) close() error {
	if m == nil {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	var errs []error
	for name, at := range m.open {
		errs = append(errs, at.file.Sync(), at.file.Close())
		delete(m.open, name)
	}
	return errors.Join(errs...)
}
