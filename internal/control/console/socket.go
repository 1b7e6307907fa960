package console

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"time"
)

const (
	// socketName is the socket's, within the data directory.
	socketName = "control.sock"
	// maxSocketPath is the room in the kernel's sockaddr_un, without its final NUL.
	maxSocketPath = 107
	dialTimeout   = 5 * time.Second
)

// socket is a listening one.
type socket struct {
	path     string
	listener *net.UnixListener
}

// listen makes the socket, with mode 0600. A socket left behind by a dead process is
// replaced; one with a listener is not.
func listen(ctx context.Context, dir string) (*socket, error) {
	path := filepath.Join(dir, socketName)
	if conn, err := dial(ctx, dir); err == nil {
		_ = conn.Close()
		return nil, fmt.Errorf("another process serves %s; give each relay a data_dir of its own", path)
	}
	// A crash on any line from here leaves no socket, or one without a listener: the
	// next start replaces it.
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("remove the socket of an earlier process: %w", err)
	}
	address, done, err := addressOf(dir)
	if err != nil {
		return nil, err
	}
	defer done()
	// The mode is set before the name exists, so nobody gets in between.
	cfg := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		return c.Control(func(fd uintptr) { _ = syscall.Fchmod(int(fd), 0o600) })
	}}
	l, err := cfg.Listen(ctx, "unix", address)
	if err != nil {
		return nil, fmt.Errorf("listen at %s: %w", path, err)
	}
	listener := l.(*net.UnixListener)
	listener.SetUnlinkOnClose(false) // address may have ceased to name it; close does it
	if err := os.Chmod(path, 0o600); err != nil {
		return nil, errors.Join(fmt.Errorf("make %s private: %w", path, err), listener.Close())
	}
	return &socket{path: path, listener: listener}, nil
}

// close removes the socket. Its listener is the HTTP server's to close.
func (s *socket) close() error {
	if err := os.Remove(s.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove the console's socket: %w", err)
	}
	return nil
}

// dial connects to the relay of dir.
func dial(ctx context.Context, dir string) (net.Conn, error) {
	address, done, err := addressOf(dir)
	if err != nil {
		return nil, err
	}
	defer done()
	d := net.Dialer{Timeout: dialTimeout}
	return d.DialContext(ctx, "unix", address)
}

// addressOf returns the socket's name for the kernel: its path. If this is too long for a
// socket, it is a path through an open directory, possible on Linux.
func addressOf(dir string) (address string, done func(), err error) {
	path := filepath.Join(dir, socketName)
	if len(path) <= maxSocketPath {
		return path, func() {}, nil
	}
	if runtime.GOOS != "linux" {
		return "", nil, fmt.Errorf("the path %s has %d bytes, a socket's may have %d: choose a shorter data_dir", path, len(path), maxSocketPath)
	}
	d, err := os.Open(dir)
	if err != nil {
		return "", nil, err
	}
	return fmt.Sprintf("/proc/self/fd/%d/%s", d.Fd(), socketName), func() { _ = d.Close() }, nil
}
