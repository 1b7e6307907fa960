package disk

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"sync"
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
//
// A file that cannot be made, written or synced any more, or that was removed, is replaced.
type slots struct {
	fs      filesystem
	path    string
	purpose uint64
	log     *slog.Logger
	// damaged is set if a slot that was written could not be read when the file was opened,
	// so that the value may be older than the newest one.
	damaged bool
	dirty   atomic.Bool // something was written since the last sync

	mu      sync.Mutex
	f       file   // nil if there was no room to make it; guarded by mu
	broken  bool   // the file has to be replaced; guarded by mu
	number  uint64 // of the newest value; guarded by mu
	value   []byte // the newest; nil before the first; guarded by mu
	scratch []byte // guarded by mu
}

const slotSize = 4096

// openSlots opens or makes the file, and returns its value, or nil.
func openSlots(s *Store, path, purpose string) (*slots, []byte, error) {
	v := &slots{fs: s.fs, path: path, purpose: sum(0, []byte(purpose)), log: s.log}
	var err error
	if v.f, err = s.fs.Open(path, true); !s.view && (isFull(err) || isMissing(err)) {
		v.broken = true // a full disk has no room for the file, or for its folder
		return v, nil, nil
	}
	if err != nil {
		return nil, nil, fmt.Errorf("open %s: %w", path, err)
	}
	v.damaged = !v.read()
	for tries := 0; v.damaged && s.view && tries < 10; tries++ {
		v.damaged = !v.read() // it was perhaps written meanwhile
	}
	if v.damaged {
		s.log.Warn("a slot of a mark cannot be read; the other one counts, and it is written again", "file", path)
	}
	return v, bytes.Clone(v.value), nil
}

// read takes the newest value of the file. It reports whether the file is as it was
// written: the number of the other slot is one less, or both were never written.
func (s *slots) read() bool {
	var numbers [2]uint64
	blank := true
	s.number, s.value = 0, nil
	for i := range numbers {
		b := make([]byte, slotSize)
		_, _ = s.f.ReadAt(b, int64(i)*slotSize) // what cannot be read is zeros
		number, value, ok := s.parse(b)
		if !ok {
			blank = blank && len(bytes.TrimRight(b, "\x00")) == 0
			continue
		}
		if numbers[i] = number; number >= s.number {
			s.number, s.value = number, value
		}
	}
	other := min(numbers[0], numbers[1])
	return s.number == other+1 && (other > 0 || blank) || s.number == 0 && blank
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
	s.mu.Lock()
	defer s.mu.Unlock()
	s.number++
	s.value = append(s.value[:0], value...)
	if !s.broken {
		s.scratch = s.encode(s.scratch[:0], s.number)
		_, err := s.f.WriteAt(s.scratch, s.at(s.number))
		if err == nil {
			s.dirty.Store(true)
			return nil
		}
		s.fail("write", err)
	}
	return s.replace()
}

// at is the offset of the slot for a number.
func (s *slots) at(number uint64) int64 { return int64((number-1)%2) * slotSize }

// encode appends the newest value under a number.
func (s *slots) encode(b []byte, number uint64) []byte {
	b = binary.LittleEndian.AppendUint64(b, number)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(s.value)))
	b = append(b, s.value...)
	return binary.LittleEndian.AppendUint64(b, sum(s.purpose, b))
}

// fail notes that the file is of no use any more. mu is held.
func (s *slots) fail(what string, cause any) {
	s.broken = true
	s.log.Warn("a mark's file is replaced, since it failed", "file", s.path, "operation", what, "error", cause)
}

// replace makes another file with the newest value in both slots. A crash leaves the old
// file or the new one. mu is held.
func (s *slots) replace() error {
	s.number++
	b := make([]byte, 2*slotSize)
	for _, number := range []uint64{s.number - 1, s.number} {
		copy(b[s.at(number):], s.encode(nil, number))
	}
	if err := replaceFile(s.fs, s.path, b); err != nil {
		return fmt.Errorf("replace %s: %w", s.path, err)
	}
	f, err := s.fs.Open(s.path, false)
	if err != nil {
		return fmt.Errorf("replace %s: %w", s.path, err)
	}
	if s.f != nil {
		_ = s.f.Close() // nothing in it counts any more
	}
	s.f, s.broken = f, false
	return nil
}

// current is the newest value, or nil if it could not be written.
func (s *slots) current() []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.broken {
		return nil
	}
	return bytes.Clone(s.value)
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
	s.mu.Lock()
	f, broken := s.f, s.broken
	s.mu.Unlock()
	if !broken && !s.dirty.Swap(false) {
		return nil
	}
	var err error
	if !broken {
		err = f.Sync()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil && f == s.f && !s.broken {
		s.fail("sync", err)
	}
	if s.broken && s.value != nil {
		return s.replace()
	}
	return nil
}

// check replaces the file if it was removed, or if the disk does not give its newest value.
func (s *slots) check(fromDisk bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.value == nil {
		return nil
	}
	if !s.broken && !s.fs.Same(s.f, s.path) {
		s.fail("open", "it was removed or replaced")
	}
	if fromDisk && !s.broken {
		s.f.Forget()
		read := &slots{purpose: s.purpose, f: s.f}
		if !read.read() || read.number != s.number {
			s.fail("read", "a slot of it is damaged")
		}
	}
	if s.broken {
		return s.replace()
	}
	return nil
}

func (s *slots) close() error {
	err := s.sync()
	if s.f != nil {
		err = errors.Join(err, s.f.Close())
	}
	return err
}
