// Package rig tries out the real relay binary: it runs processes, connects the relay to a
// simulated workspace, and waits for results. Its users cause the faults, and count.
package rig

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/auditrelay/auditrelay/internal/retry"
)

// For connections, and for listeners on any port, the kernel chooses ports from 32768 up.
const (
	firstPort = 10_000
	lastPort  = 32_000
)

// given are the addresses that this process was given.
var given sync.Map

// FreeAddresses finds n different HOST:PORT on loopback that are free at this moment. The
// kernel gives none of these ports to others by chance. If a process asks for that very port,
// the later start fails.
func FreeAddresses(ctx context.Context, n int) (all []string, err error) {
	for len(all) < n {
		address := fmt.Sprintf("127.0.0.1:%d", firstPort+rand.IntN(lastPort-firstPort))
		l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
		if errors.Is(err, syscall.EADDRINUSE) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("find a free port: %w", err)
		}
		if _, twice := given.LoadOrStore(address, true); twice {
			_ = l.Close() // whoever it was given to may be about to listen
			continue
		}
		defer func() { _ = l.Close() }() // not before all are found: none may come twice
		all = append(all, address)
	}
	return all, nil
}

// pace is the pause between two looks at a condition.
const pace = 20 * time.Millisecond

// Until waits until met returns true, but at most for within. Its error names what was waited
// for. It also ends with ctx, and with the first process that ends.
func Until(ctx context.Context, within time.Duration, what string, met func() bool, alive ...*Process) error {
	deadline := time.Now().Add(within)
	for !met() {
		for _, p := range alive {
			if p.Ended() {
				return fmt.Errorf("wait until %s: %w", what, p.Unexpected())
			}
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("wait until %s: not within %s%s", what, within, said(alive))
		}
		if err := retry.Sleep(ctx, pace); err != nil {
			return fmt.Errorf("wait until %s: %w", what, err)
		}
	}
	return nil
}

// said returns the ends of the processes' logs.
func said(processes []*Process) string {
	var b strings.Builder
	for _, p := range processes {
		fmt.Fprintf(&b, "; %s said: %s", p.name, p.Tail())
	}
	return b.String()
}
