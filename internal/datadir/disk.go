package datadir

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/auditrelay/auditrelay/internal/datadir/blockfile"
	"github.com/auditrelay/auditrelay/internal/datadir/natsserver"
	"github.com/auditrelay/auditrelay/internal/durable"
	"github.com/auditrelay/auditrelay/internal/lasting"
	"github.com/auditrelay/auditrelay/internal/pause"
)

const (
	// spareBytes must be free before a server starts: it writes its state then, and must
	// not fail again at the next record.
	spareBytes = 16 << 20
	// probeBytes is the size of a test write to a disk.
	probeBytes = 1 << 20
)

// waitForDisk returns when a write to dir succeeds, or with ctx's error.
func waitForDisk(ctx context.Context, dir string, log *slog.Logger) error {
	var failing lasting.Failure
	for {
		err := tryDisk(dir)
		if err == nil {
			return nil
		}
		if failing.Again("") {
			log.Error("the journal's disk cannot be written to; the relay waits until it can", append(failing.Fields(), "error", err)...)
		}
		if err := pause.For(ctx, diskPause); err != nil {
			return fmt.Errorf("wait for space in %s: %w", dir, err)
		}
	}
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
	// After a crash here, the next try replaces the file.
	defer func() { err = errors.Join(err, f.Close(), os.Remove(path)) }()
	if _, err := f.WriteAt(make([]byte, probeBytes), 0); err != nil { // like the server
		return fmt.Errorf("try the disk: %w", err)
	}
	if err := f.Sync(); err != nil {
		return fmt.Errorf("try the disk: %w", err)
	}
	return nil
}

// renewNewestBlock rewrites and syncs the file the server appends to. No server may be
// running.
//
// After a kill or a failed fsync, records may be readable without being on disk: once an
// operating system has reported a failed fsync, it forgets the unwritten pages. A push
// recognised by such a record must not be acknowledged before the record is on disk. A
// failed write ends the server's epoch for the stream, so only the newest file is at
// risk.
func renewNewestBlock(streamDir string) error {
	newest, err := newestBlock(filepath.Join(streamDir, natsserver.MessagesDir))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil && newest != "" {
		if err = blockfile.Regular(newest); err == nil {
			err = blockfile.Unreadable(durable.Rewrite(newest))
		}
	}
	if errors.Is(err, blockfile.ErrUnreadable) {
		return nil // mending writes it anew, or moves its folder
	}
	if err != nil {
		return fmt.Errorf("sync the newest file of %s: %w", filepath.Base(streamDir), err)
	}
	return nil
}

// newestBlock is the path of NUMBER.blk with the highest number, or "".
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
