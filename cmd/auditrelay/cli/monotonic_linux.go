package cli

import "golang.org/x/sys/unix"

// monotonicMicros is the system's monotonic clock, as a service manager has it.
func monotonicMicros() int64 {
	var now unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &now) // never fails for this clock
	return now.Nano() / 1000
}
