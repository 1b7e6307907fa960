package durable

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// lockFile is the file in a folder that names the process which has locked it.
const lockFile = "lock"

// lockPatience bounds the wait for another process to release a folder.
const lockPatience = time.Second

// LockedError says that another process has locked a folder.
type LockedError struct {
	Dir    string
	Holder string // as it describes itself; empty if it did not yet
}

func (e *LockedError) Error() string {
	holder := e.Holder
	if holder == "" {
		holder = "another process"
	}
	return fmt.Sprintf("%s is in use by %s: stop it first, or choose another data directory", e.Dir, holder)
}

// Lock keeps other processes off a folder, which must exist, until the returned file is
// closed. The kernel frees the lock when the process dies. If another process has it, the
// error is a [LockedError].
//
// The folder itself is locked, and no file in it: so nobody can remove the lock of a process
// that runs, for an old one. Where only files can be locked, as on NFS, the file is.
func Lock(dir string) (*os.File, error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, fmt.Errorf("open the folder to be locked: %w", err)
	}
	err = flock(f)
	if errors.Is(err, unix.EBADF) {
		_ = f.Close() // it was only to be locked
		if f, err = os.OpenFile(filepath.Join(dir, lockFile), os.O_CREATE|os.O_RDWR, 0o600); err != nil {
			return nil, fmt.Errorf("open the lock of the folder: %w", err)
		}
		err = flock(f)
	}
	switch {
	case errors.Is(err, unix.EWOULDBLOCK):
		return nil, errors.Join(&LockedError{Dir: dir, Holder: holderOf(dir)}, f.Close())
	case err != nil:
		return nil, errors.Join(fmt.Errorf("lock %s: %w", f.Name(), err), f.Close())
	}
	signLock(dir)
	return f, nil
}

// IsLocked reports whether a process has locked a folder with [Lock], or may have. It writes
// nothing.
func IsLocked(dir string) bool {
	for _, path := range []string{dir, filepath.Join(dir, lockFile)} {
		f, err := os.Open(path)
		if err != nil {
			return !errors.Is(err, fs.ErrNotExist)
		}
		err = unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB)
		_ = f.Close() // it was only looked at
		if !errors.Is(err, unix.EBADF) {
			return err != nil
		}
	}
	return true
}

// tryLock is flock(2), for an exclusive lock, without waiting. Tests exchange it.
var tryLock = func(f *os.File) error { return unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) }

// flock locks a file. A process that ends, or a child of ours that starts, may hold it for a
// moment longer.
func flock(f *os.File) error {
	for deadline := time.Now().Add(lockPatience); ; time.Sleep(lockPatience / 20) {
		if err := tryLock(f); !errors.Is(err, unix.EWOULDBLOCK) || time.Now().After(deadline) {
			return err
		}
	}
}

// signLock says who holds the lock, for the message of the next one who wants it. Where that
// fails, as on a full disk, nothing is said, which does no harm.
func signLock(dir string) {
	f, err := os.OpenFile(filepath.Join(dir, lockFile), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return
	}
	host, _ := os.Hostname()
	if f.Truncate(0) == nil {
		_, _ = fmt.Fprintf(f, "process %d (%s) on %s\n", os.Getpid(), filepath.Base(os.Args[0]), host)
	}
	_ = f.Close()
}

// holderOf is what the holder of a folder's lock says of itself, if it does.
func holderOf(dir string) string {
	f, err := Open(filepath.Join(dir, lockFile))
	if err != nil {
		return ""
	}
	defer func() { _ = f.Close() }()                  // it was only read
	holder, _ := io.ReadAll(io.LimitReader(f, 1<<10)) // it may be empty as well
	return strings.TrimSpace(string(holder))
}
