package datadir

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/auditrelay/auditrelay/internal/datadir/natsserver"
	"github.com/auditrelay/auditrelay/internal/durable"
	"github.com/auditrelay/auditrelay/internal/pause"
)

const (
	// spareBytes is what must be free before a journal is started: the server
	// writes its state then, and shall not fail at the next record again.
	spareBytes = 16 << 20
	// probeBytes is what is written to see whether a disk works.
	probeBytes = 1 << 20
)

// waitForDisk returns when dir can be written to, or with ctx's error.
func waitForDisk(ctx context.Context, dir string) error {
	for tryDisk(dir) != nil {
		if err := pause.For(ctx, diskPause); err != nil {
			return fmt.Errorf("wait for space in %s: %w", dir, err)
		}
	}
	return nil
}

// tryDisk writes and syncs a file in dir, and removes it.
func tryDisk(dir string) (err error) {
	var disk unix.Statfs_t
	if err := unix.Statfs(dir, &disk); err != nil {
		return fmt.Errorf("look at the disk of %s: %w", dir, err)
	}
	if free := disk.Bavail * uint64(disk.Bsize); free < spareBytes {
		return fmt.Errorf("%s has %d KiB of free disk space, at least %d KiB are needed", dir, free>>10, spareBytes>>10)
	}
	path := filepath.Join(dir, "probe.tmp")
	f, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("try the disk: %w", err)
	}
	// A crash here leaves the file, which the next try replaces.
	defer func() { err = errors.Join(err, f.Close(), os.Remove(path)) }()
	if _, err := f.WriteAt(make([]byte, probeBytes), 0); err != nil { // as the server writes
		return fmt.Errorf("try the disk: %w", err)
	}
	if err := f.Sync(); err != nil {
		return fmt.Errorf("try the disk: %w", err)
	}
	return nil
}

// renewNewestBlock writes the file that the server appends to anew, and syncs
// it. No server may be running.
//
// A process that was killed, or whose fsync failed, may leave records that can
// be read but are not on disk: an operating system forgets, after it has told
// of a failed fsync, that the pages were never written. What is recognised by
// them as kept already must not be acknowledged before they are on disk. A
// failed write ends a stream's life, so that only its newest file is concerned.
func renewNewestBlock(streamDir string) error {
	newest, err := newestBlock(filepath.Join(streamDir, natsserver.MessagesDir))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil && newest != "" {
		err = durable.Rewrite(newest)
	}
	if err != nil {
		return fmt.Errorf("make sure that the newest file of %s is on disk: %w", filepath.Base(streamDir), err)
	}
	return nil
}

// newestBlock is the file NUMBER.blk with the highest number, or "".
func newestBlock(folder string) (path string, err error) {
	entries, err := os.ReadDir(folder)
	highest := -1
	for _, e := range entries {
		number, isBlock := strings.CutSuffix(e.Name(), natsserver.BlockSuffix)
		if n, err := strconv.Atoi(number); isBlock && err == nil && n > highest {
			highest, path = n, filepath.Join(folder, e.Name())
		}
	}
	return path, err
}
