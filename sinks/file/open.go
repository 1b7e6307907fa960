package file

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/auditrelay/auditrelay/internal/store/durable"
)

// follow makes sure that s.file is the file at s.cfg.Path.
func (s *Sink) follow() error {
	if s.file != nil {
		held, heldErr := s.file.Stat()
		found, err := os.Stat(s.cfg.Path)
		if err == nil && heldErr == nil && os.SameFile(held, found) && found.Size() == s.size {
			return nil
		}
		s.opts.Logger.Warn("file was changed by something else and is opened again", "path", s.cfg.Path)
		s.release()
	}
	return s.open()
}

// open opens the file, or makes it, and cuts off a torn last line.
func (s *Sink) open() error {
	if err := makeDir(filepath.Dir(s.cfg.Path)); err != nil {
		return err
	}
	if !s.swept {
		if err := s.sweep(); err != nil {
			return err
		}
		s.swept = true
	}
	f, err := os.OpenFile(s.cfg.Path, os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o600)
	if err != nil {
		return fmt.Errorf("open file: %w", err)
	}
	if err := s.adopt(f); err != nil {
		_ = f.Close()
		return err
	}
	if s.compressor != nil { // the rotation before this one, or an earlier run, may have left work
		s.compressor.wake()
	}
	return nil
}

func (s *Sink) adopt(f *os.File) error {
	info, err := f.Stat()
	if err != nil {
		return fmt.Errorf("open file: %w", err)
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("open file: %s is not a regular file", s.cfg.Path)
	}
	size, err := s.repair(f, info.Size())
	if err != nil {
		return err
	}
	// The name must be on disk before anything in the file is acknowledged.
	if err := s.disk.syncDir(filepath.Dir(s.cfg.Path)); err != nil {
		return err
	}
	s.file, s.size, s.period = f, size, s.periodOf(info.ModTime())
	return nil
}

// repair cuts off a last line without its newline, and returns the length that is left. Such a
// line was never acknowledged: the process crashed while writing it, and the event is delivered
// again.
func (s *Sink) repair(f *os.File, size int64) (int64, error) {
	whole, err := s.whole(f, size)
	if err != nil || whole == size {
		return whole, err
	}
	if err := f.Truncate(whole); err != nil {
		return 0, fmt.Errorf("cut off a torn line: %w", err)
	}
	s.opts.Logger.Warn("torn last line cut off", "path", s.cfg.Path, "bytes", size-whole)
	return whole, nil
}

// whole returns the length of f without a torn last line, if this sink wrote that line.
func (s *Sink) whole(f io.ReaderAt, size int64) (int64, error) {
	whole, err := wholeLines(f, size)
	if err != nil || whole == size {
		return whole, err
	}
	torn := make([]byte, min(size-whole, int64(max(len(lineStart), len(s.opts.BodyStart)))))
	if _, err := f.ReadAt(torn, whole); err != nil {
		return 0, fmt.Errorf("read %s: %w", s.cfg.Path, err)
	}
	// After a power cut, blocks that were not written may read as zeros.
	torn = bytes.TrimRight(torn, "\x00")
	if !s.ours(torn) {
		return 0, fmt.Errorf("%s ends in the middle of a line, and this sink did not write it: move the file away", s.cfg.Path)
	}
	return whole, nil
}

// wholeLines returns the length up to and with the last newline.
func wholeLines(f io.ReaderAt, size int64) (int64, error) {
	buf := make([]byte, 64<<10)
	for end := size; end > 0; {
		start := max(0, end-int64(len(buf)))
		chunk := buf[:end-start]
		if _, err := f.ReadAt(chunk, start); err != nil {
			return 0, fmt.Errorf("look for the last line: %w", err)
		}
		if i := bytes.LastIndexByte(chunk, '\n'); i >= 0 {
			return start + int64(i) + 1, nil
		}
		end = start
	}
	return 0, nil
}

func makeDir(dir string) error {
	if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
		return nil // it is there, or opening the file will report the error
	}
	return durable.MakeDir(dir)
}
