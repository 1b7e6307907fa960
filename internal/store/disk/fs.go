package disk

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/auditrelay/auditrelay/internal/store/durable"
)

// filesystem is what the backend asks of the operating system. The tests bring one that
// loses what was not synced, fails and fills up.
type filesystem interface {
	// Open opens a file as one of the constants below says.
	Open(path string, flags int) (file, error)
	// Names lists a folder, sorted. A folder that is not there is empty.
	Names(dir string) ([]string, error)
	MakeDir(dir string) error
	Rename(from, to string) error
	Remove(path string) error
	// SyncDir makes the names in a folder durable.
	SyncDir(dir string) error
	// Same reports whether path still names the file f.
	Same(f file, path string) bool
}

// How files are opened. A filesystem that became read-only allows the first.
const (
	toRead  = os.O_RDONLY
	toWrite = os.O_RDWR
	toMake  = os.O_RDWR | os.O_CREATE
)

type file interface {
	io.ReaderAt
	io.WriterAt
	io.Closer
	// Sync makes the file's bytes durable. After an error nothing is known of what was
	// written since the last success, whatever a later Sync says.
	Sync() error
	Truncate(size int64) error
	// Allocate reserves the disk's blocks for the first size bytes, which read as zeros.
	Allocate(size int64) error
	Size() (int64, error)
	// Data is the first offset from a given one on where the file may have other bytes than
	// zeros: the given one, if the filesystem cannot tell.
	Data(offset int64) int64
	// Forget drops the file's bytes from an offset on from memory, so that the next read asks
	// the disk.
	Forget(from int64)
}

type osFS struct {
	readOnly bool
	// aside is the folder for whatever stands in the place of a file or of a folder, and is
	// none. Empty: it stays.
	aside string
	log   *slog.Logger
}

type osFile struct{ *os.File }

func (o osFS) Open(path string, flags int) (file, error) {
	if o.readOnly {
		flags = toRead
	}
	f, err := durable.OpenFile(path, flags)
	if err != nil && o.moveAside(path, fs.FileMode.IsRegular) {
		f, err = durable.OpenFile(path, flags)
	}
	if err != nil {
		return nil, err
	}
	return osFile{f}, nil
}

// moveAside moves what stands at a path out of the way unless it is right, and reports whether it
// could: into the folder for such things, or, where that takes nothing, to a name of its own next to
// where it stood. A crash after it leaves nothing there, as if it had been removed.
func (o osFS) moveAside(path string, right func(fs.FileMode) bool) bool {
	info, err := os.Lstat(path)
	if err != nil || right(info.Mode()) || o.aside == "" {
		return false
	}
	name := fmt.Sprintf("%s-%s-%d", filepath.Base(filepath.Dir(path)), filepath.Base(path), time.Now().UnixNano())
	to := filepath.Join(o.aside, name)
	if err = os.MkdirAll(o.aside, 0o700); err == nil {
		err = os.Rename(path, to)
	}
	if err != nil { // the folder is none, or another filesystem's
		to = filepath.Join(filepath.Dir(path), name)
		err = os.Rename(path, to)
	}
	o.log.Error("something else stands where the store has a file or a folder, and is moved aside", "path", path, "to", to, "error", err)
	return err == nil
}

func (osFS) Names(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	names := make([]string, 0, len(entries))
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names, nil
}

func (o osFS) MakeDir(dir string) error {
	err := durable.MakeDir(dir)
	if err != nil && o.moveAside(dir, fs.FileMode.IsDir) {
		err = durable.MakeDir(dir)
	}
	return err
}

func (osFS) Rename(from, to string) error { return os.Rename(from, to) }
func (osFS) Remove(path string) error     { return os.Remove(path) }

func (osFS) SyncDir(dir string) error { return durable.SyncDir(dir) }

func (osFS) Same(f file, path string) bool {
	named, err := os.Stat(path)
	if err != nil {
		return false
	}
	open, err := f.(osFile).Stat()
	return err == nil && os.SameFile(named, open)
}

func (f osFile) Size() (int64, error) {
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

func (f osFile) Data(offset int64) int64 {
	at, err := unix.Seek(int(f.Fd()), offset, unix.SEEK_DATA)
	if errors.Is(err, unix.ENXIO) { // only zeros follow
		at, err = f.Size()
	}
	if err != nil {
		return offset
	}
	return max(offset, at)
}

// replaceFile makes a file of these bytes. A crash leaves the old file or the new one.
func replaceFile(fs filesystem, path string, b []byte) error {
	if err := stageFile(fs, path, b); err != nil {
		return err
	}
	return takePlace(fs, path)
}

// staged is where the bytes stand that are to replace a file.
func staged(path string) string { return path + ".new" }

// stageFile writes what is to replace a file, next to it. After an error there is nothing.
func stageFile(fs filesystem, path string, b []byte) error {
	f, err := fs.Open(staged(path), toMake)
	if err != nil {
		return err
	}
	err = f.Truncate(0)
	if err == nil {
		_, err = f.WriteAt(b, 0)
	}
	if err == nil {
		err = f.Sync()
	}
	if err := errors.Join(err, f.Close()); err != nil {
		return errors.Join(err, fs.Remove(staged(path)))
	}
	return nil
}

// takePlace puts what was staged in the place of a file.
func takePlace(fs filesystem, path string) error {
	if err := fs.Rename(staged(path), path); err != nil {
		return err
	}
	return fs.SyncDir(filepath.Dir(path))
}

// isFull reports whether an error says that there is no room.
func isFull(err error) bool {
	return errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT)
}

// isPassing reports whether a file could not be opened for a reason that lies outside of it,
// and that may be another one soon: no descriptors, no memory, no permission, a filesystem that became
// read-only.
func isPassing(err error) bool {
	for _, passing := range []error{unix.EMFILE, unix.ENFILE, unix.ENOMEM, unix.EINTR, unix.EAGAIN, unix.EROFS, fs.ErrPermission} {
		if errors.Is(err, passing) {
			return true
		}
	}
	return isFull(err)
}
