//go:build !linux

package disk

// Sync reaches the disk itself: elsewhere than on Linux, fdatasync may stop at the disk's own memory.
func (f osFile) Sync() error { return f.File.Sync() }

// Allocate only sets the size: a full disk is noticed later, by a write.
func (f osFile) Allocate(size int64) error { return f.Truncate(size) }

// Forget does nothing: the system drops by itself what it has no room for.
func (f osFile) Forget(int64) {}
