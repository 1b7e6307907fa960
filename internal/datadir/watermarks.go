package datadir

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

	"github.com/auditrelay/auditrelay/internal/durable"
)

// Watermarks are positions noted beside the embedded server's files: the newest one
// acknowledged to a sender, the end of the trimmed records, and each sink's position. The
// server keeps no checksum of a position, and after a crash it takes the end of its
// newest block for the stream's end. A watermark shows when either is wrong. The server
// also writes positions only some times a second: after a kill a sink goes on from its
// watermark, and only deliveries under way are repeated.
//
// Each stands in a file of its own, with a checksum, and is written without a sync. After
// a kill it is exact; after a power loss it may be older than the truth. It is never
// newer.
//
// An external stream has watermarks too, on the relay's own disk. They set no sink's
// position forward: such a stream may lose its end and reuse its positions.
//
// Nil watermarks are empty and keep nothing.
type Watermarks struct {
	dir      string
	log      *slog.Logger
	failures atomic.Uint64 // failed writes of watermarks

	mu      sync.Mutex
	open    map[string]*openWatermark // guarded by mu
	failing map[string]bool           // watermarks with a failed newest write; guarded by mu
}

type openWatermark struct {
	Watermark
	file *os.File
}

// Watermark is a noted position. Its file holds the two fields and their checksum.
type Watermark struct {
	Value uint64
	// Stream is the time of the stream's creation, in ns since 1970. It tells streams of
	// one name apart; 0 if this does not matter.
	Stream int64
}

// Names of watermarks; a sink's has the name of its consumer.
const (
	Acknowledged = "acknowledged"
	Trimmed      = "trimmed"
)

const (
	watermarkSize = 24 // bytes
	// marksDir is the folder of the watermarks in the data directory.
	marksDir = "marks"
	// endsDir is the folder of the ends of the streams beside the events'. It is
	// separate, as newest reads all watermarks of the events'.
	endsDir = "ends"
	// trailDir is the folder of the audit trail's notes.
	trailDir = "trail"
)

// OpenWatermarks opens the watermarks in a data directory, to read and write them.
func OpenWatermarks(path string, log *slog.Logger) (*Watermarks, error) {
	m := ReadWatermarks(path)
	m.log, m.open, m.failing = log, map[string]*openWatermark{}, map[string]bool{}
	for _, dir := range []string{endsDir, trailDir} {
		if err := durable.MakeDir(filepath.Join(m.dir, dir)); err != nil {
			return nil, fmt.Errorf("make directory of watermarks: %w", err)
		}
	}
	return m, nil
}

// ReadWatermarks opens the watermarks in a data directory, to read them only.
func ReadWatermarks(path string) *Watermarks { return &Watermarks{dir: filepath.Join(path, marksDir)} }

// RemoveWatermarks removes the watermarks of the events' stream, and leaves the folders
// beside them.
func RemoveWatermarks(path string) error {
	dir := filepath.Join(path, marksDir)
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove the watermarks of another journal: %w", err)
	}
	for _, e := range entries {
		if e.IsDir() {
			continue
		}
		if err := os.Remove(filepath.Join(dir, e.Name())); err != nil {
			return fmt.Errorf("remove the watermarks of another journal: %w", err)
		}
	}
	return nil
}

// Dir is their folder. Other notes on the stream may stand there.
func (m *Watermarks) Dir() string { return m.dir }

// ForwardedFile is the place for the audit trail's note of the newest entry given to the
// sinks. The trail reads and writes it itself.
func (m *Watermarks) ForwardedFile() string { return filepath.Join(m.dir, trailDir, "forwarded") }

// Read returns a watermark, or false without a sound one.
func (m *Watermarks) Read(name string) (Watermark, bool) {
	if m == nil {
		return Watermark{}, false
	}
	data, err := os.ReadFile(filepath.Join(m.dir, name))
	if err != nil || len(data) != watermarkSize {
		return Watermark{}, false
	}
	if binary.LittleEndian.Uint64(data[16:]) != xxhash.Sum64(data[:16]) {
		return Watermark{}, false // a flipped bit could claim endless positions
	}
	return Watermark{binary.LittleEndian.Uint64(data), int64(binary.LittleEndian.Uint64(data[8:]))}, true
}

// newest is the greatest of all: the events' stream has reached it.
func (m *Watermarks) newest() (value uint64) {
	if m == nil {
		return 0
	}
	files, _ := os.ReadDir(m.dir) // an unreadable folder has none
	for _, file := range files {
		w, _ := m.Read(file.Name())
		value = max(value, w.Value)
	}
	return value
}

// End is the newest known position of a stream beside the events'.
func (m *Watermarks) End(stream string) uint64 {
	w, _ := m.Read(filepath.Join(endsDir, stream))
	return w.Value
}

// RaiseEnd notes the newest position of a stream beside the events'.
func (m *Watermarks) RaiseEnd(stream string, seq uint64) {
	m.Raise(filepath.Join(endsDir, stream), Watermark{Value: seq})
}

// ends lists the streams with a noted end.
func (m *Watermarks) ends() (streams []string) {
	if m == nil {
		return nil
	}
	noted, _ := os.ReadDir(filepath.Join(m.dir, endsDir)) // an unreadable folder has none
	for _, e := range noted {
		streams = append(streams, e.Name())
	}
	return streams
}

// Lowest is the lowest of a stream's watermarks with the prefix in their names; 0 if
// there is none.
func (m *Watermarks) Lowest(prefix string, stream int64) (value uint64) {
	if m == nil {
		return 0
	}
	files, _ := os.ReadDir(m.dir) // an unreadable folder has none
	found := false
	for _, file := range files {
		w, ok := m.Read(file.Name())
		if !ok || w.Stream != stream || !strings.HasPrefix(file.Name(), prefix) {
			continue
		}
		if !found || w.Value < value {
			value, found = w.Value, true
		}
	}
	return value
}

// Raise raises a watermark, or sets one of another stream. A failure loses no event:
// after a kill a sink gets more events twice, and the end of a damaged stream is less
// sure. So it is counted, and logged when it begins and when it ends.
func (m *Watermarks) Raise(name string, to Watermark) {
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.told(name, m.write(name, to, false))
}

// Lower lowers a watermark: the stream lost the records above.
func (m *Watermarks) Lower(name string, to Watermark) {
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if at, ok := m.Read(name); ok && at.Value > to.Value {
		m.told(name, m.write(name, to, true))
	}
}

// Tell counts and logs the error of a file beside the watermarks, or its end.
func (m *Watermarks) Tell(name string, err error) {
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.told(name, err)
}

// Failures counts the failed writes.
func (m *Watermarks) Failures() uint64 {
	if m == nil {
		return 0
	}
	return m.failures.Load()
}

// told counts a failure, and logs the first. mu is held.
func (m *Watermarks) told(name string, err error) {
	if err != nil {
		m.failures.Add(1)
	}
	switch was := m.failing[name]; {
	case err != nil && !was:
		m.log.Warn("a watermark could not be written; should the relay be killed now, sinks may get more events twice", "watermark", name, "error", err)
	case err == nil && was:
		m.log.Info("a watermark is written again", "watermark", name)
	}
	m.failing[name] = err != nil
}

// write sets a lower watermark, one of another stream, or any if down. mu is held.
func (m *Watermarks) write(name string, to Watermark, down bool) error {
	at := m.open[name]
	if at == nil {
		f, err := os.OpenFile(filepath.Join(m.dir, name), os.O_CREATE|os.O_RDWR, 0o600)
		if err != nil {
			return fmt.Errorf("open watermark: %w", err)
		}
		at = &openWatermark{file: f}
		at.Watermark, _ = m.Read(name)
		m.open[name] = at
	}
	if !down && to.Value <= at.Value && to.Stream == at.Stream {
		return nil
	}
	var data [watermarkSize]byte
	binary.LittleEndian.PutUint64(data[:], to.Value)
	binary.LittleEndian.PutUint64(data[8:], uint64(to.Stream))
	binary.LittleEndian.PutUint64(data[16:], xxhash.Sum64(data[:16]))
	// Some bytes within a page: a kill leaves them whole or not at all.
	if _, err := at.file.WriteAt(data[:], 0); err != nil {
		return fmt.Errorf("write watermark: %w", err)
	}
	at.Watermark = to
	return nil
}

// Forget removes the watermark of a consumer to be removed.
func (m *Watermarks) Forget(name string) error {
	if m == nil {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if at := m.open[name]; at != nil {
		_ = at.file.Close() // its content is removed
		delete(m.open, name)
	}
	if err := os.Remove(filepath.Join(m.dir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("forget watermark: %w", err)
	}
	return nil
}

// Close writes the watermarks to disk.
func (m *Watermarks) Close() error {
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
