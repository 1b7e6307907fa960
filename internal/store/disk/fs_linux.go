package disk

import (
	"errors"

	"golang.org/x/sys/unix"
)

// Sync does without the times of the file, which nobody needs after a crash.
func (f osFile) Sync() error {
	for {
		err := unix.Fdatasync(int(f.Fd()))
		if !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

func (f osFile) Allocate(size int64) error {
	err := unix.Fallocate(int(f.Fd()), 0, 0, size)
	if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENOSYS) {
		return f.Truncate(size) // a full disk is noticed later, by a write
	}
	return err
}

func (f osFile) Forget(from int64) { _ = unix.Fadvise(int(f.Fd()), from, 0, unix.FADV_DONTNEED) }
