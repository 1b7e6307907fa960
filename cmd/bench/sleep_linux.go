package main

import (
	"syscall"
	"time"
)

// sleepUntil is exact to some 0.05 ms. The runtime's timers wait in whole milliseconds,
// and would make each push late.
func sleepUntil(due time.Time) {
	for left := time.Until(due); left > 0; left = time.Until(due) {
		t := syscall.NsecToTimespec(int64(left))
		_ = syscall.Nanosleep(&t, nil) // after a signal it goes on sleeping
	}
}
