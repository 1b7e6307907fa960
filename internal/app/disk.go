package app

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"syscall"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sys/unix"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/internal/store/durable"
)

// littleRoom on the disk is no room for all that is not an event: the trail, and how far sinks are. Pushes
// are taken nevertheless, for as long as the room that the journal has reserved lasts.
const littleRoom = 16 << 20

// freeOn is the room that a folder's disk has for the relay, whoever fills it.
func freeOn(dir string) (config.Size, error) {
	var disk unix.Statfs_t
	if err := unix.Statfs(dir, &disk); err != nil {
		return 0, err
	}
	return config.Size(disk.Bavail) * config.Size(disk.Bsize), nil
}

// diskFree is the room of the data directory's disk; NaN where it cannot be asked.
func diskFree(dir string) prometheus.Collector {
	return gauge("auditrelay_disk_free_bytes", "Free room on the data directory's disk.", func() float64 {
		free, err := freeOn(dir)
		if err != nil {
			return math.NaN()
		}
		return float64(free)
	})
}

func (r *process) diskRemark(context.Context) (string, error) {
	dir := r.cfg().DataDir
	free, err := freeOn(dir)
	switch {
	case err != nil:
		return fmt.Sprintf("warning: the disk of %s cannot be asked for its room: %v", dir, err), nil
	case free < littleRoom:
		return fmt.Sprintf("warning: the disk of %s has %v left, so that the audit trail and the positions of sinks may not be written; make room", dir, free), nil
	}
	return fmt.Sprintf("%v are free", free), nil
}

// makeDataDir makes the data directory where there is none, and says what keeps this user from it.
func makeDataDir(dir string) error {
	err := durable.MakeDir(dir)
	if err == nil {
		err = unix.Faccessat(unix.AT_FDCWD, dir, unix.R_OK|unix.W_OK|unix.X_OK, unix.AT_EACCESS)
	}
	advice := ""
	switch {
	case err == nil:
		return nil
	case errors.Is(err, fs.ErrPermission):
		advice = fmt.Sprintf("; run the relay as the user whom the folder belongs to, or give the folder to this user (uid %d)", os.Geteuid())
	case errors.Is(err, fs.ErrExist), errors.Is(err, syscall.ENOTDIR):
		advice = "; it, or what it is in, is a file: set another data_dir"
	}
	return fmt.Errorf("data_dir %s: %w%s", dir, err, advice)
}
