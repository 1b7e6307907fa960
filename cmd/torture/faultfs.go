package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"time"
)

// chaos is how long some of the calls fail, before all do.
const chaos = 2 * time.Second

// faultFS has system calls of the relay fail: first some of each thread's, at
// random, and then all. Then it either heals, and the relay must recover by
// itself, or kills the relay in the fault.
func faultFS(ctx context.Context, t *trial) error {
	tracer, err := exec.LookPath("strace")
	if err != nil {
		return &skip{"strace is not installed"}
	}
	s, err := t.running(ctx, setting{})
	if err != nil {
		return err
	}
	defer s.close()
	rng := t.random()
	faults := []string{"fsync:error=EIO", "pwrite64:error=EIO", "pwrite64:error=ENOSPC", "fsync,pwrite64,renameat,unlinkat:error=EIO"}
	killed := 0
	for rounds := share(t.rounds, 12); t.row.rounds < rounds; t.row.rounds++ {
		if err := s.waitAcknowledged(ctx, s.sim.Counts().Acknowledged+1+rng.Uint64N(uint64(t.rate/2)+1)); err != nil {
			return err
		}
		fault := faults[t.row.rounds%len(faults)]
		some := fmt.Sprintf("%s:when=%d+%d", fault, 1+rng.IntN(20), 1+rng.IntN(20))
		t.progress("round %d: %s, then all of them", t.row.rounds+1, some)
		kill := t.row.rounds%3 == 2
		if err := s.faultRound(ctx, tracer, some, fault, kill); err != nil {
			return fmt.Errorf("%s: %w", some, err)
		}
		if kill {
			killed++
		}
	}
	t.remark("%d times back by itself, %d times killed in the fault; writes cannot be cut short here", t.row.rounds-killed, killed)
	if err := s.waitAcknowledged(ctx, s.sim.Counts().Acknowledged+1); err != nil {
		return err
	}
	return s.settle(ctx)
}

func (s *scene) faultRound(ctx context.Context, tracer, some, all string, kill bool) error {
	heal, err := s.inject(ctx, tracer, some)
	if err != nil {
		return err
	}
	err = s.hold(ctx, chaos)
	heal()
	if err != nil {
		return err
	}
	if heal, err = s.inject(ctx, tracer, all); err != nil {
		return err
	}
	defer heal()
	if err := s.refusesAll(ctx); err != nil || !kill {
		return err
	}
	s.relay.kill()
	return s.start()
}

// inject begins to make system calls of the relay fail; heal ends that.
func (s *scene) inject(ctx context.Context, tracer, fault string) (heal func(), err error) {
	cmd := exec.Command(tracer, "-f", "-qq", "-o", "/dev/null", "-e", "trace=fsync,pwrite64,renameat,unlinkat", //nolint:noctx,gosec // it is ended by heal
		"-e", "inject="+fault, "-p", strconv.Itoa(s.relay.cmd.Process.Pid))
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start strace: %w", err)
	}
	heal = func() {
		_ = cmd.Process.Signal(os.Interrupt) // it lets go of the relay
		_ = cmd.Wait()
	}
	traced := func() bool { return tracerOf(s.relay.cmd.Process.Pid) != 0 }
	for deadline := time.Now().Add(5 * time.Second); !traced(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) || ctx.Err() != nil {
			heal()
			return nil, &skip{"strace may not trace processes here"}
		}
	}
	return heal, nil
}

// refusesAll waits until the fault is noticed, and then holds the relay to it
// that nothing is acknowledged.
func (s *scene) refusesAll(ctx context.Context) error {
	if err := s.until(ctx, recovery, "the fault is noticed", func() bool {
		code, _ := s.ask(ctx, "/readyz")
		return code == 503
	}); err != nil {
		return err
	}
	if err := s.hold(ctx, 500*time.Millisecond); err != nil { // answers under way
		return err
	}
	before := s.sim.Counts().Acknowledged
	if err := s.hold(ctx, 2*time.Second); err != nil {
		return err
	}
	if n := s.sim.Counts().Acknowledged - before; n > 0 {
		return fmt.Errorf("%d events were acknowledged while writes or fsyncs failed", n)
	}
	return nil
}
