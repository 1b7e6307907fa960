package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"sync/atomic"
	"syscall"

	"github.com/auditrelay/auditrelay/internal/app"
)

// The variables of sd_listen_fds(3), and one of our own for a number other than 3, which a process
// that replaces itself cannot choose.
const (
	listenPID   = "LISTEN_PID"
	listenFDs   = "LISTEN_FDS"
	listenNames = "LISTEN_FDNAMES"
	listenFirst = "AUDITRELAY_LISTEN_FD"
)

// handedOver is the listening socket of pushes that a service manager, or this process before it
// replaced itself, hands to this process; a nil file if there is none.
func handedOver() (*app.Socket, error) {
	pid, count, names := os.Getenv(listenPID), os.Getenv(listenFDs), os.Getenv(listenNames)
	first, err := strconv.Atoi(os.Getenv(listenFirst))
	if err != nil {
		first = 3
	}
	for _, name := range []string{listenPID, listenFDs, listenNames, listenFirst} {
		_ = os.Unsetenv(name) // a command that the relay runs gets no socket
	}
	if pid != strconv.Itoa(os.Getpid()) || count == "" || count == "0" {
		return app.NewSocket(nil), nil
	}
	if count != "1" || names != "" && names != "ingest" {
		return nil, fmt.Errorf("the service manager hands over %s listening sockets (%s), and the relay takes one that is named ingest: let the socket unit have one ListenStream= and FileDescriptorName=ingest", count, names)
	}
	syscall.CloseOnExec(first)
	return app.NewSocket(os.NewFile(uintptr(first), "ingest")), nil
}

// successor replaces the relay by another run of its file, in the same process, when it gets a
// SIGUSR2: the relay stops, and the listening socket of the pushes stays open meanwhile.
type successor struct {
	socket *app.Socket
	wanted atomic.Bool
}

// follow returns a context that ends when a successor is wanted. stop gives the signal back.
func (s *successor) follow(ctx context.Context) (_ context.Context, stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGUSR2)
	go func() {
		for range signals {
			s.socket.Keep()
			s.wanted.Store(true)
			cancel()
		}
	}()
	return ctx, func() { signal.Stop(signals); close(signals); cancel() }
}

// errNoSuccessor: the relay has stopped, and its successor cannot be started.
var errNoSuccessor = errors.New("the relay has stopped, and cannot be replaced")

// replace starts the successor, if one is wanted and nobody has told the relay to end; then it does
// not return.
func (s *successor) replace(ctx context.Context) error {
	if ended := ctx.Err() != nil; ended || !s.wanted.Load() {
		return nil //nolint:nilerr // it was told to end, and has
	}
	path, err := os.Executable() // as it was named at the start: another file may be there now
	if err != nil {
		return fmt.Errorf("%w: %w", errNoSuccessor, err)
	}
	environment := os.Environ()
	if file := s.socket.File(); file != nil { // else it was told before it listened
		fd, err := syscall.Dup(int(file.Fd())) // without the flag to close it
		if err != nil {
			return fmt.Errorf("%w: %w", errNoSuccessor, err)
		}
		environment = append(environment, listenPID+"="+strconv.Itoa(os.Getpid()), listenFDs+"=1", listenNames+"=ingest", listenFirst+"="+strconv.Itoa(fd))
	}
	signal.Ignore(syscall.SIGUSR2, syscall.SIGHUP) // one that comes now would end the process, until the successor hears it
	err = syscall.Exec(path, os.Args, environment)
	return fmt.Errorf("%w: run %s: %w", errNoSuccessor, path, err)
}
