package cli

import (
	"context"
	"log/slog"
	"net"
	"os"
	"strconv"
	"time"
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
	if s.within == 0 {
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
