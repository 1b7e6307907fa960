package journal

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"github.com/cespare/xxhash/v2"
)

// marks are sequences that the relay notes for itself beside the embedded
// server's files, each in a file of its own with a checksum: the newest one
// that was acknowledged to a sender, how far was trimmed, and each sink's position. The
// server keeps no checksum of a position, and after a crash it takes whatever
// its newest block ends with for the stream's end; against the marks it shows
// when either is wrong.
//
// They are written without a sync: after a kill they are exact, after a power
// loss they may be older than the truth. They are never newer.
//
// Nil marks, as of an external cluster, are empty and keep nothing.
type marks struct {
	dir string

	mu   sync.Mutex
	open map[string]*mark // guarded by mu
}

type mark struct {
	file  *os.File
	value uint64
}

const (
	markAcknowledged = "acknowledged"
	markTrimmed      = "trimmed"
)

func openMarks(dataDir string) (*marks, error) {
	m := &marks{dir: filepath.Join(dataDir, "marks"), open: map[string]*mark{}}
	if err := os.MkdirAll(m.dir, 0o700); err != nil {
		return nil, fmt.Errorf("make directory of marks: %w", err)
	}
	return m, nil
}

// read returns a mark, or 0 and false where there is no sound one.
func (m *marks) read(name string) (uint64, bool) {
	if m == nil {
		return 0, false
	}
	data, err := os.ReadFile(filepath.Join(m.dir, name))
	if err != nil || len(data) != 16 {
		return 0, false
	}
	if binary.LittleEndian.Uint64(data[8:]) != xxhash.Sum64(data[:8]) {
		return 0, false // a flipped bit could claim that there are positions without end
	}
	return binary.LittleEndian.Uint64(data), true
}

// raise sets a mark where value is greater than what it was set to. It cannot fail in a way that
// loses an event: a mark that stays behind says less than it could.
func (m *marks) raise(name string, value uint64) {
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	at := m.open[name]
	if at == nil {
		f, err := os.OpenFile(filepath.Join(m.dir, name), os.O_CREATE|os.O_RDWR, 0o600)
		if err != nil {
			return
		}
		at = &mark{file: f}
		at.value, _ = m.read(name)
		m.open[name] = at
	}
	if value <= at.value {
		return
	}
	var data [16]byte
	binary.LittleEndian.PutUint64(data[:], value)
	binary.LittleEndian.PutUint64(data[8:], xxhash.Sum64(data[:8]))
	// 16 bytes within a page: a kill leaves them whole or not at all.
	if _, err := at.file.WriteAt(data[:], 0); err == nil {
		at.value = value
	}
}

// forget removes a mark: its consumer is gone, or is set back on purpose.
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
