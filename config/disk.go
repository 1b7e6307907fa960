package config

import (
	"fmt"
	"io/fs"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// budget compares the journal's budget with the disk of the data directory. Once the disk
// is full, pushes are refused, however much of the budget is left.
func (f files) budget(c *Config) {
	if c.Journal.URL != "" { // the cluster has disks of its own
		return
	}
	const field = "journal.max_bytes"
	whole, free, ok := diskOf(c.DataDir)
	budget := uint64(max(0, c.Journal.MaxBytes))
	switch {
	case !ok:
	case budget > whole:
		f.bad(field, c.Journal.MaxBytes, fmt.Sprintf("is more than the whole disk of %s, which has %v (%v of them free): pushes will be refused once it is full; "+
			"give less, or put data_dir on a larger disk", c.DataDir, roughly(whole), roughly(free)))
	case budget > free && budget > free+used(c.DataDir):
		f.k.warn(field, fmt.Sprintf("%v is more than the disk of %s has left, %v: pushes will be refused once it is full", c.Journal.MaxBytes, c.DataDir, roughly(free)))
	}
}

// diskOf returns the bytes of the disk that dir is on, or will be on once it is made.
func diskOf(dir string) (whole, free uint64, ok bool) {
	for {
		var disk unix.Statfs_t
		if err := unix.Statfs(dir, &disk); err == nil {
			return disk.Blocks * uint64(disk.Bsize), disk.Bavail * uint64(disk.Bsize), true
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return 0, 0, false
		}
		dir = parent
	}
}

// used returns the bytes of the files in dir, as far as it can be read.
func used(dir string) (bytes uint64) {
	_ = filepath.WalkDir(dir, func(_ string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return nil //nolint:nilerr // what cannot be read counts nothing
		}
		if info, err := entry.Info(); err == nil {
			bytes += uint64(max(0, info.Size()))
		}
		return nil
	})
	return bytes
}

// roughly rounds down to whole MiB, or GiB of many.
func roughly(bytes uint64) Size {
	unit := uint64(1 << 20)
	if bytes >= 10<<30 {
		unit = 1 << 30
	}
	return Size(bytes / unit * unit)
}
