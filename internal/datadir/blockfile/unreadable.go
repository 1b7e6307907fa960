package blockfile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// ErrUnreadable marks a file the disk cannot give: it has a bad sector, or is no regular
// file. No other error is damage: a file without the permission to read it may be sound.
var ErrUnreadable = errors.New("the disk does not give the file")

// Unreadable makes an error of the disk an ErrUnreadable, and leaves any other as it is.
func Unreadable(err error) error {
	for _, disk := range []error{unix.EIO, unix.EISDIR, unix.ENOTDIR, unix.EUCLEAN, unix.EBADMSG} {
		if errors.Is(err, disk) {
			return fmt.Errorf("%w: %w", ErrUnreadable, err)
		}
	}
	return err
}

// Regular refuses anything else than a regular file. A named pipe would hang its reader.
func Regular(path string) error {
	info, err := os.Stat(path)
	if err == nil && !info.Mode().IsRegular() {
		return fmt.Errorf("%w: %s is no regular file", ErrUnreadable, path)
	}
	return Unreadable(err)
}

// ReadFile reads a file. Its error may be an ErrUnreadable.
func ReadFile(path string) ([]byte, error) {
	if err := Regular(path); err != nil {
		return nil, err
	}
	data, err := os.ReadFile(path)
	return data, Unreadable(err)
}

// sectorBytes are read at a time around bad sectors: a page of the kernel's.
const sectorBytes = 4096

// readAround reads a file with zeros in place of bad sectors.
func readAround(path string) ([]byte, error) {
	if err := Regular(path); errors.Is(err, ErrUnreadable) {
		return nil, nil
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // only read
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	data := make([]byte, info.Size())
	for at := 0; at < len(data); at += sectorBytes {
		piece := data[at:min(at+sectorBytes, len(data))]
		if _, err := f.ReadAt(piece, int64(at)); err != nil {
			clear(piece)
		}
	}
	return data, nil
}

// readDir lists a folder. A missing one is empty.
func readDir(dir string) ([]fs.DirEntry, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return entries, Unreadable(err)
}
