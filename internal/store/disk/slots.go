package disk

import (
	"encoding/binary"
	"fmt"
	"sync/atomic"
)

// slots is a small file with two places for one value, written in turn. The newer of
// those that are whole counts, so a write that was torn costs nothing but itself. The
// checksum covers the purpose of the file: a copy of another one is no value here.
//
//	0  number    8, one more with each write
//	8  length    4
//	12 value
//	.. checksum  8
type slots struct {
	fs      filesystem
	path    string
	purpose uint64
	f       file
	number  uint64      // of the newest value
	dirty   atomic.Bool // something was written since the last sync
	scratch []byte
}

const slotSize = 4096

// openSlots opens or makes the file, and returns its value, or nil.
func openSlots(fs filesystem, path, purpose string) (*slots, []byte, error) {
	s := &slots{fs: fs, path: path, purpose: sum(0, []byte(purpose))}
	f, err := fs.Open(path, true)
	if err != nil {
		return nil, nil, fmt.Errorf("open %s: %w", path, err)
	}
	s.f = f
	var newest []byte
	for i := range 2 {
		b := make([]byte, slotSize)
		if n, _ := f.ReadAt(b, int64(i)*slotSize); n < 12 {
			continue
		}
		if number, value, ok := s.parse(b); ok && number >= s.number {
			s.number, newest = number, value
		}
	}
	return s, newest, nil
}

func (s *slots) parse(b []byte) (number uint64, value []byte, ok bool) {
	n := int(binary.LittleEndian.Uint32(b[8:]))
	if n > slotSize-20 {
		return 0, nil, false
	}
	if binary.LittleEndian.Uint64(b[12+n:]) != sum(s.purpose, b[:12+n]) {
		return 0, nil, false
	}
	return binary.LittleEndian.Uint64(b), b[12 : 12+n], true
}

// write replaces the value, but does not sync it. A kill after it returned leaves the new
// value, and a kill before leaves the old one or the new one.
func (s *slots) write(value []byte) error {
	b := binary.LittleEndian.AppendUint64(s.scratch[:0], s.number+1)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(value)))
	b = append(b, value...)
	b = binary.LittleEndian.AppendUint64(b, sum(s.purpose, b))
	s.scratch = b
	s.dirty.Store(true)
	if _, err := s.f.WriteAt(b, int64(s.number%2)*slotSize); err != nil {
		return fmt.Errorf("write %s: %w", s.path, err)
	}
	s.number++
	return nil
}

// put replaces the value and syncs it.
func (s *slots) put(value []byte) error {
	if err := s.write(value); err != nil {
		return err
	}
	return s.sync()
}

// sync makes the newest value durable. It may run while another goroutine writes.
func (s *slots) sync() error {
	if !s.dirty.Swap(false) {
		return nil
	}
	if err := s.f.Sync(); err != nil {
		return fmt.Errorf("sync %s: %w", s.path, err)
	}
	return nil
}
