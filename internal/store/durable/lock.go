package durable

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// lockFile is the file in a folder that is locked, and names the process that holds it.
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
func Lock(dir string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(dir, lockFile), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the lock of the folder: %w", err)
	}
	// A process that ends, or a child of ours that starts, may hold it for a moment longer.
	for deadline := time.Now().Add(lockPatience); ; time.Sleep(lockPatience / 20) {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			signLock(f)
			return f, nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) {
			return nil, errors.Join(fmt.Errorf("lock %s: %w", f.Name(), err), f.Close())
		}
		if time.Now().After(deadline) {
			holder, _ := io.ReadAll(io.LimitReader(f, 1<<10)) // it may be empty as well
			return nil, errors.Join(&LockedError{Dir: dir, Holder: strings.TrimSpace(string(holder))}, f.Close())
		}
	}
}

// signLock says who holds the lock, for the message of the next one who wants it. On a full
// disk the file says nothing, which does no harm.
func signLock(f *os.File) {
	host, _ := os.Hostname()
	if f.Truncate(0) == nil {
		_, _ = fmt.Fprintf(f, "process %d (%s) on %s\n", os.Getpid(), filepath.Base(os.Args[0]), host)
	}
}
