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
	blockSize = 50
)

// block has ports that no other process with a rig is given: this one listens on the block's first
// port for as long as it lives.
var block struct {
	mu        sync.Mutex
	listeners []net.Listener // of all blocks; guarded by mu
	next, end int            // guarded by mu
}

// nextPort is one that this process was not given before.
func nextPort(ctx context.Context) (int, error) {
	block.mu.Lock()
	defer block.mu.Unlock()
	for block.next == block.end {
		base := firstPort + blockSize*rand.IntN((lastPort-firstPort)/blockSize)
		l, err := listen(ctx, base)
		if errors.Is(err, syscall.EADDRINUSE) {
			continue
		}
		if err != nil {
			return 0, err
		}
		block.listeners = append(block.listeners, l)
		block.next, block.end = base+1, base+blockSize
	}
	block.next++
	return block.next - 1, nil
}

func listen(ctx context.Context, port int) (net.Listener, error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil && !errors.Is(err, syscall.EADDRINUSE) {
		return nil, fmt.Errorf("find a free port: %w", err)
	}
	return l, err
}

// FreeAddresses finds n different HOST:PORT on loopback that are free at this moment. The
// kernel gives none of these ports to others by chance, and no other process with a rig does. If
// a process asks for that very port, the later start fails.
func FreeAddresses(ctx context.Context, n int) (all []string, err error) {
	for len(all) < n {
		port, err := nextPort(ctx)
		if err != nil {
			return nil, err
		}
		l, err := listen(ctx, port)
		if errors.Is(err, syscall.EADDRINUSE) {
			continue
		}
		if err != nil {
			return nil, err
		}
		_ = l.Close() // it was only tried
		all = append(all, l.Addr().String())
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
