package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"syscall"
	"time"
)

// chaos is how long some of the calls fail, before all do.
const chaos = 1500 * time.Millisecond

// diskFault is a set of failing system calls.
type diskFault struct {
	calls, errno string
	// durable is set if nothing can be made durable meanwhile, so that the relay must notice,
	// and acknowledge nothing.
	durable bool
}

var diskFaults = []diskFault{
	{syncs, "EIO", true},
	{renames, "EIO", false},
	{"pwrite64", "EIO", true},
	{removals, "EACCES", false},
	{"pwrite64", "ENOSPC", true},
	{renames, "ENOSPC", false},
	{syncs + ",pwrite64," + renames + "," + removals, "EIO", true},
	{"openat", "EMFILE", false},
}

// The system calls that are counted and made fail.
const (
	syncs    = "fsync,fdatasync"
	renames  = "renameat,?rename,?renameat2"
	removals = "unlinkat,?unlink"
	traced   = "trace=" + syncs + ",pwrite64,openat,fallocate,ftruncate," + renames + "," + removals
)

// rollFaults meet the making of a new segment: its file, its room and its name. In the end no
// segment can be made, and the events find no room.
var rollFaults = []diskFault{
	{"fallocate", "ENOSPC", true},
	{"openat", "ENOSPC", true},
	{"fsync", "EIO", true}, // of the folder; the files have fdatasync
	{"fallocate,ftruncate", "EIO", true},
}

// some makes the fault affect some of each thread's calls, all the rest.
func (f diskFault) some(rng *rand.Rand) string {
	return fmt.Sprintf("%s:error=%s:when=%d+%d", f.calls, f.errno, 1+rng.IntN(20), 1+rng.IntN(20))
}

func (f diskFault) all() string { return f.calls + ":error=" + f.errno }

// faultFS makes system calls of the relay fail: first some of each thread's, at random, and
// then all. After that it either heals, and the relay must recover by itself, or kills the
// relay during the fault and starts it there.
func faultFS(ctx context.Context, t *trial) error {
	// The file sink renames when it rotates.
	return faulty(ctx, t, setting{rotate: "rotate_bytes: 1MiB"}, diskFaults)
}

// failedRolls has the journal begin a new segment every second or so, and has that fail: some
// of the time, then always.
func failedRolls(ctx context.Context, t *trial) error {
	return faulty(ctx, t, setting{more: "journal: {max_bytes: 16MiB}\n"}, rollFaults)
}

func faulty(ctx context.Context, t *trial, o setting, faults []diskFault) error {
	tracer, err := exec.LookPath("strace")
	if err != nil {
		return &skip{"strace is not installed"}
	}
	s, err := t.running(ctx, o)
	if err != nil {
		return err
	}
	defer s.close()
	d := &faultyDisk{scene: s, tracer: tracer}
	rng := t.random()
	for rounds := share(t.rounds, 12); t.row.rounds < rounds; t.row.rounds++ {
		if err := s.waitAcknowledged(ctx, s.sim.Counts().Acknowledged+1+rng.Uint64N(uint64(t.rate/2)+1)); err != nil {
			return err
		}
		fault := faults[t.row.rounds%len(faults)]
		some := fault.some(rng)
		t.progress("round %d: %s, then all of them", t.row.rounds+1, some)
		if err := d.round(ctx, fault, some, t.row.rounds%4 >= 2 || !fault.durable); err != nil {
			return fmt.Errorf("%s: %w", some, err)
		}
	}
	t.remark("%d calls failed; %d times back by itself, %d times killed in the fault and started there, where it ended by itself %d times",
		d.failed, t.row.rounds-d.killed, d.killed, d.ends)
	if err := s.waitAcknowledged(ctx, s.sim.Counts().Acknowledged+1); err != nil {
		return err
	}
	if err := s.settle(ctx); err != nil {
		return err
	}
	return s.nothingQuarantined(ctx)
}

// faultyDisk is a scene whose relay's system calls fail.
type faultyDisk struct {
	*scene
	tracer string
	// Counts over all rounds: failed calls, kills during the fault, and starts during the fault
	// that ended by themselves.
	failed, killed, ends int
}

func (d *faultyDisk) round(ctx context.Context, fault diskFault, some string, kill bool) error {
	if err := d.under(ctx, some, func() error { return d.hold(ctx, chaos) }); err != nil {
		return err
	}
	if err := d.under(ctx, fault.all(), func() error { return d.endure(ctx, fault) }); err != nil || !kill {
		return err
	}
	d.relay.kill()
	d.killed++
	return d.startFaulty(ctx, fault)
}

// endure checks a relay while all of the calls fail.
func (d *faultyDisk) endure(ctx context.Context, fault diskFault) error {
	if fault.durable {
		return d.refusesAll(ctx)
	}
	return d.hold(ctx, chaos)
}

// startFaulty starts the relay with the fault present from its first call on. It may end by
// itself and say why; then whoever looks after it starts it again.
func (d *faultyDisk) startFaulty(ctx context.Context, fault diskFault) error {
	if err := d.startStopped(); err != nil {
		return err
	}
	before := d.sim.Counts().Acknowledged
	err := d.under(ctx, fault.all(), func() error {
		if err := d.relay.cmd.Process.Signal(syscall.SIGCONT); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-d.relay.exited:
		case <-time.After(chaos):
		}
		return nil
	})
	if err != nil {
		return err
	}
	if n := d.sim.Counts().Acknowledged - before; n > 0 && fault.durable {
		return fmt.Errorf("%d events were acknowledged after a start in the fault", n)
	}
	if d.relay.ended() {
		d.ends++
		return d.startReady(ctx)
	}
	return d.waitReady(ctx)
}

// under makes system calls fail while do runs, and counts them.
func (d *faultyDisk) under(ctx context.Context, fault string, do func() error) error {
	trace, err := d.attach(ctx, d.tracer, "-e", traced, "-e", "inject="+fault)
	if err != nil {
		return err
	}
	defer trace.detach()
	if err := do(); err != nil {
		return err
	}
	trace.detach()
	n, err := trace.injected()
	d.failed += n
	return err
}

// refusesAll waits until the relay notices the fault, and then lets it acknowledge
// nothing.
func (s *scene) refusesAll(ctx context.Context) error {
	if err := s.until(ctx, "the fault is noticed", func() bool {
		code, _ := s.ask(ctx, "/readyz")
		return code == 503
	}); err != nil {
		return err
	}
	if err := s.acknowledgesNothing(ctx); err != nil {
		return fmt.Errorf("while writes or fsyncs fail: %w", err)
	}
	return nil
}

// acknowledgesNothing waits for the answers under way. After them no event may be acknowledged
// any more.
func (s *scene) acknowledgesNothing(ctx context.Context) error {
	const underWay = 20 // an answer reaches the simulator in one of so many looks
	before := s.sim.Counts().Acknowledged
	for range underWay {
		if err := s.hold(ctx, chaos); err != nil {
			return err
		}
		now := s.sim.Counts().Acknowledged
		if now == before {
			return nil
		}
		before = now
	}
	return fmt.Errorf("events are still acknowledged, %d until now", before)
}
