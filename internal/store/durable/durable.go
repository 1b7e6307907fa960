// Package durable changes files: a crash leaves the old state or the new one, and after
// a call has returned, a power cut does not undo it.
package durable

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
)

// WriteFile replaces the content of path, or creates the file, which only its owner can read.
// Its folder must exist; see [MakeDir].
func WriteFile(path string, data []byte) error {
	return osDisk().replace(path, func(w io.Writer) error {
		_, err := w.Write(data)
		return err
	})
}

// Replace is [WriteFile] for content that is written piece by piece.
func Replace(path string, write func(io.Writer) error) error { return osDisk().replace(path, write) }

// CreateFile is [WriteFile] for a file that must not exist. If two calls make it at the same
// time, the later one wins.
func CreateFile(path string, data []byte) error {
	if _, err := os.Lstat(path); err == nil {
		return fmt.Errorf("%s exists", path)
	} else if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return WriteFile(path, data)
}

// ErrNoFile means that a folder, a pipe or the like stands at a path.
var ErrNoFile = errors.New("it is not a regular file")

// Open opens a file to read it, but no pipe, whose reader would wait for ever.
func Open(path string) (*os.File, error) { return OpenFile(path, os.O_RDONLY) }

// OpenFile is [os.OpenFile] for a regular file, which only its owner can read if it is made.
func OpenFile(path string, flags int) (*os.File, error) {
	f, err := os.OpenFile(path, flags|syscall.O_NONBLOCK, 0o600)
	if err != nil {
		return nil, err
	}
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil, errors.Join(&fs.PathError{Op: "open", Path: path, Err: ErrNoFile}, err, f.Close())
	}
	return f, nil
}

// ReadFile is [os.ReadFile] by way of [Open].
func ReadFile(path string) ([]byte, error) {
	f, err := Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // it was only read
	return io.ReadAll(f)
}

// MakeDir creates the folder dir and its missing parents, for their owner only,
// and makes their names durable.
func MakeDir(dir string) error { return osDisk().makeDir(dir) }

// SyncDir makes the names in dir durable, after files were created, renamed or removed
// there.
func SyncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("sync folder: %w", err)
	}
	if err := errors.Join(d.Sync(), d.Close()); err != nil {
		return fmt.Errorf("sync folder: %w", err)
	}
	return nil
}

// File is a file to write.
type File struct {
	Path string
	Data []byte
}

// WriteFiles is [WriteFile] for many files; missing folders are made. The files are synced
// side by side, as a disk syncs many in little more than the time of one, and each folder
// once. After an error or a crash some of the files are written, each whole.
func WriteFiles(files []File) error { return osDisk().replaceAll(files) }

// disk has the steps for a test to watch and to fail.
type disk struct {
	sync    func(*os.File) error
	rename  func(from, to string) error
	syncDir func(dir string) error
}

func osDisk() disk { return disk{(*os.File).Sync, os.Rename, SyncDir} }

// syncing bounds how many files are synced at a time.
const syncing = 16

func (d disk) replaceAll(files []File) error {
	folders := map[string]bool{}
	for _, f := range files {
		folders[filepath.Dir(f.Path)] = true
	}
	var dirs []string
	for dir := range folders {
		dirs = append(dirs, dir)
		if err := d.makeDir(dir); err != nil {
			return err
		}
	}
	err := SideBySide(len(files), func(i int) error {
		return d.put(files[i].Path, func(w io.Writer) error {
			_, err := w.Write(files[i].Data)
			return err
		})
	})
	if err != nil {
		return err
	}
	return SideBySide(len(dirs), func(i int) error { return d.syncDir(dirs[i]) })
}

// SideBySide does n things, some at a time, and returns the first error.
func SideBySide(n int, do func(i int) error) error { return Workers(syncing, n, do) }

// Workers does n things, as many at a time as there are workers, and returns the first error.
func Workers(workers, n int, do func(i int) error) error {
	var (
		all    sync.WaitGroup
		next   atomic.Int64
		failed atomic.Pointer[error]
	)
	for range min(n, workers) {
		all.Go(func() {
			for i := next.Add(1) - 1; i < int64(n) && failed.Load() == nil; i = next.Add(1) - 1 {
				if err := do(int(i)); err != nil {
					failed.CompareAndSwap(nil, &err)
				}
			}
		})
	}
	all.Wait()
	if err := failed.Load(); err != nil {
		return *err
	}
	return nil
}

// replace replaces path, and makes its name durable.
func (d disk) replace(path string, write func(io.Writer) error) error {
	if err := d.put(path, write); err != nil {
		return err
	}
	// From here on a crash of the process leaves the new file. A power cut may
	// bring the old one back until the folder is synced.
	return d.syncDir(filepath.Dir(path))
}

// put replaces path by a synced file.
func (d disk) put(path string, write func(io.Writer) error) error {
	dir := filepath.Dir(path)
	// The dot keeps programs that list files such as *.jsonl from taking what a killed process
	// left for one of theirs.
	f, err := os.CreateTemp(dir, "."+filepath.Base(path)+".*.tmp")
	if err != nil {
		return fmt.Errorf("replace %s: %w", path, err)
	}
	err = write(f) // a temporary file is its owner's only
	// Up to the rename, a crash leaves the old file, and next to it what was written of the
	// new one. Without this sync the new name could reach the disk before the
	// content, and a power cut would leave an empty file.
	if err == nil {
		err = d.sync(f)
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = d.rename(f.Name(), path)
	}
	if err != nil {
		_ = os.Remove(f.Name()) // what is left of it does no harm
		if isDir(path) {
			return fmt.Errorf("replace %s: it is a folder; move it away", path)
		}
		return fmt.Errorf("replace %s: %w", path, err)
	}
	return nil
}

func (d disk) makeDir(dir string) error {
	if isDir(dir) {
		return nil
	}
	parent := filepath.Dir(dir)
	if parent == dir {
		return fmt.Errorf("make folder: %s is not there", dir)
	}
	if err := d.makeDir(parent); err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o700); err != nil && !isDir(dir) { // another may have made it
		return fmt.Errorf("make folder: %w", err)
	}
	// After a power cut, a synced file is lost with a folder whose name is not.
	return d.syncDir(parent)
}

func isDir(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}
