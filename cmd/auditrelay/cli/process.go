package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"runtime/debug"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/auditrelay/auditrelay/internal/app"
)

// supervisor is the service manager that started this process, such as systemd, by the protocol
// of sd_notify(3). Where there is none, nothing is told.
type supervisor struct {
	socket string        // $NOTIFY_SOCKET
	within time.Duration // how often it wants a sign of life; 0: never
	log    *slog.Logger
}

func newSupervisor(log *slog.Logger) supervisor {
	s := supervisor{socket: os.Getenv("NOTIFY_SOCKET"), log: log}
	micros, err := strconv.ParseInt(os.Getenv("WATCHDOG_USEC"), 10, 64)
	if pid := os.Getenv("WATCHDOG_PID"); err == nil && micros > 0 && (pid == "" || pid == strconv.Itoa(os.Getpid())) {
		s.within = time.Duration(micros) * time.Microsecond
	}
	return s
}

// tell sends a state, such as READY=1. A supervisor that does not hear of it waits in vain, or
// restarts the relay, so that is logged.
func (s supervisor) tell(ctx context.Context, state string) {
	if s.socket == "" {
		return
	}
	conn, err := (&net.Dialer{}).DialContext(ctx, "unixgram", s.socket)
	if err == nil {
		_, err = conn.Write([]byte(state))
		_ = conn.Close() // the datagram has been sent, or err says why not
	}
	if err != nil && ctx.Err() == nil {
		s.log.Warn("the service manager could not be told of the relay's state", "state", state, "error", err)
	}
}

// reloads tells that a reload begins, and gives the function that tells of its end. Both states of
// the begin stand in one datagram: systemd counts only a READY=1 that comes after that time. A
// refused reload is over, too: the relay goes on, and its status says why.
func (s supervisor) reloads(ctx context.Context) (ended func(refused string)) {
	ctx = context.WithoutCancel(ctx)
	s.tell(ctx, "RELOADING=1\nMONOTONIC_USEC="+strconv.FormatInt(monotonicMicros(), 10))
	return func(refused string) { s.tell(ctx, "READY=1\nSTATUS="+statusAfter(refused)) }
}

// statusAfter is what `systemctl status` shows after a reload. It is one line, as each line of a
// datagram is a state of its own.
func statusAfter(refused string) string {
	if refused == "" {
		return "The configuration was reloaded."
	}
	return "The reload was refused: " + oneLine(refused)
}

// alive gives signs of life until ctx ends. Like /healthz, they say only that the process runs at
// all, since a restart cures nothing else.
func (s supervisor) alive(ctx context.Context) {
	if s.within <= 0 { // it is below 0 where the number was too large
		return
	}
	_ = every(ctx, s.within/2, func() error {
		s.tell(ctx, "WATCHDOG=1")
		return nil
	})
}

// supervised runs the relay, and tells the supervisor when it takes pushes and when it stops.
func (s supervisor) supervised(ctx context.Context, run func(ready func()) error) error {
	always := context.WithoutCancel(ctx)
	living, cancel := context.WithCancel(always) // until the relay has stopped
	defer cancel()
	go s.alive(living)
	defer context.AfterFunc(ctx, func() { s.tell(always, "STOPPING=1") })()
	return run(func() { s.tell(always, "READY=1") })
}

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

// warnOfCgo warns of a binary that may abort where a static one holds: the threads of a process with
// cgo cannot be made under a limit of its address space, and the C library then ends it.
func warnOfCgo(log *slog.Logger, info *debug.BuildInfo) {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_AS, &limit); err != nil || limit.Cur == unix.RLIM_INFINITY || info == nil {
		return
	}
	for _, s := range info.Settings {
		if s.Key == "CGO_ENABLED" && s.Value == "1" {
			log.Warn("this binary was built with cgo, and the address space of the process is limited (ulimit -v, RLIMIT_AS): it may abort under load; take a release, or build it with CGO_ENABLED=0", "limit", limit.Cur)
		}
	}
}
