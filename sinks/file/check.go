package file

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// leastSpace is how many bytes must be free for a delivery to have a chance.
const leastSpace = 1 << 20

// Check implements relay.Checker. It only looks: it neither makes nor changes a file, so
// another process may be writing to the path.
func (s *Sink) Check(ctx context.Context, report func(what, found string)) error {
	var first error
	fail := func(what string, err error) {
		if err != nil && first == nil {
			first = fmt.Errorf("%s: %w", what, err)
		}
		if err != nil {
			report(what, err.Error())
		}
	}
	dir, exists := existing(filepath.Dir(s.cfg.Path))
	fail("directory "+dir, s.checkDir(dir, exists, report))
	fail("file "+s.cfg.Path, s.checkFile(report))
	fail("free space", s.checkSpace(dir, report))
	if first == nil {
		first = ctx.Err()
	}
	return first
}

// existing returns dir, or the nearest folder above it that exists.
func existing(dir string) (_ string, exists bool) {
	for at := dir; ; at = filepath.Dir(at) {
		if _, err := os.Stat(at); !errors.Is(err, fs.ErrNotExist) || at == filepath.Dir(at) {
			return at, at == dir
		}
	}
}

// checkDir requires the permissions to make, rename and sync a file in dir.
func (s *Sink) checkDir(dir string, exists bool, report func(what, found string)) error {
	info, err := os.Stat(dir)
	if err != nil {
		return err
	}
	if !info.IsDir() {
		return errors.New("it is not a directory")
	}
	if err := access(dir, unix.R_OK|unix.W_OK|unix.X_OK); err != nil {
		return err
	}
	found := "files can be made in it"
	if !exists {
		found = fmt.Sprintf("%s can be made below it", filepath.Dir(s.cfg.Path))
	}
	report("directory "+dir, found)
	return nil
}

func access(path string, mode uint32) error {
	err := unix.Faccessat(unix.AT_FDCWD, path, mode, unix.AT_EACCESS)
	if err != nil {
		return fmt.Errorf("it cannot be read and written by this user (uid %d): %w", os.Geteuid(), err)
	}
	return nil
}

// checkFile requires a file that can be appended to, or none.
func (s *Sink) checkFile(report func(what, found string)) error {
	what := "file " + s.cfg.Path
	info, err := os.Stat(s.cfg.Path)
	if errors.Is(err, fs.ErrNotExist) {
		report(what, "does not exist yet, and will be made")
		return nil
	}
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return errors.New("it is not a regular file")
	}
	if err := access(s.cfg.Path, unix.R_OK|unix.W_OK); err != nil {
		return err
	}
	f, err := os.Open(s.cfg.Path)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	if _, err := s.whole(f, info.Size()); err != nil {
		return err
	}
	report(what, fmt.Sprintf("has %d bytes, and can be appended to", info.Size()))
	return nil
}

func (s *Sink) checkSpace(dir string, report func(what, found string)) error {
	free, err := s.disk.free(dir)
	if err != nil {
		return err
	}
	if free < leastSpace {
		return fmt.Errorf("%d bytes are left: make room", free)
	}
	report("free space", fmt.Sprintf("%d MiB", free>>20))
	return nil
}

// freeSpace returns how many bytes the disk of dir has left for this user.
func freeSpace(dir string) (uint64, error) {
	var disk unix.Statfs_t
	if err := unix.Statfs(dir, &disk); err != nil {
		return 0, fmt.Errorf("look at the disk of %s: %w", dir, err)
	}
	return disk.Bavail * uint64(disk.Bsize), nil
}
