package app

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/auditrelay/auditrelay/internal/store/durable"
)

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
