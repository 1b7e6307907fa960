package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// diskFull fills the disk under the relay's data: while events are taken, while
// a backlog is delivered, and before a start.
func diskFull(ctx context.Context, t *trial) error {
	small, err := mountDisk(filepath.Join(t.dir, "disk"))
	if err != nil {
		return &skip{"a small file system cannot be mounted (it takes root): " + err.Error()}
	}
	defer small.unmount()
	small.random = t.random()
	if tracer, err := exec.LookPath("strace"); err == nil {
		small.tracer = tracer
	}
	// A segment of this budget has 1 MiB: what is allocated already is soon full.
	s, err := t.running(ctx, setting{dataDir: filepath.Join(small.path, "data"), more: "journal: {max_bytes: 32MiB}\n"})
	if err != nil {
		return err
	}
	defer s.close()
	if err := s.steady(ctx); err != nil {
		return err
	}
	for _, phase := range []func(context.Context, *scene, *smallDisk) error{fullInIngest, fullInDelivery, fullAtStart} {
		if err := phase(ctx, s, small); err != nil {
			return err
		}
		t.row.rounds++
	}
	if small.tracer == "" {
		t.remark("strace is not installed, so the writes that were cut short are not counted")
	} else {
		t.remark("%d writes cut short by the full disk", small.cutShort)
	}
	if err := s.settle(ctx); err != nil {
		return err
	}
	return s.nothingQuarantined(ctx)
}

// fullInIngest fills the disk under load. The load writes the rest of it.
func fullInIngest(ctx context.Context, s *scene, d *smallDisk) error {
	if err := s.fillAndWatch(ctx, d); err != nil {
		return fmt.Errorf("full during ingest: %w", err)
	}
	took, err := s.makeRoom(ctx, d)
	if err != nil {
		return fmt.Errorf("full during ingest: %w", err)
	}
	s.t.remark("ingest: took a push %s after space was back", took)
	return nil
}

// fillAndWatch fills the disk, and counts short writes.
func (s *scene) fillAndWatch(ctx context.Context, d *smallDisk) error {
	if d.tracer == "" {
		return s.full(ctx, d)
	}
	trace, err := s.attach(ctx, d.tracer, onlyWrites...)
	if err != nil {
		return err
	}
	defer trace.detach()
	if err := s.full(ctx, d); err != nil {
		return err
	}
	trace.detach()
	all, err := trace.shorts()
	d.cutShort += len(all)
	return err
}

// full fills the disk, and checks the relay's promises about that.
func (s *scene) full(ctx context.Context, d *smallDisk) error {
	if err := d.fill(); err != nil {
		return err
	}
	if err := s.refused(ctx, d); err != nil {
		return err
	}
	start := time.Now()
	if code, retry := s.push(ctx); code != http.StatusServiceUnavailable || retry == "" {
		return fmt.Errorf("a push on the full disk was answered with %d, Retry-After %q", code, retry)
	}
	// A disk that does not answer is waited for, and a full one is not.
	if took := time.Since(start); took > 10*time.Second {
		return fmt.Errorf("a push on the full disk was answered after %s", took)
	}
	if code, text := s.ask(ctx, "/readyz"); code != http.StatusServiceUnavailable {
		return fmt.Errorf("/readyz answers %d on the full disk: %s", code, text)
	}
	if err := s.acknowledgesNothing(ctx); err != nil {
		return fmt.Errorf("on the full disk: %w", err)
	}
	return nil
}

// refused waits until pushes are refused, the smallest ones too. What was left of the disk, and
// what the journal has allocated, is written before. The workspace's own pushes would take
// long for that: a refused one is tried again after its Retry-After.
func (s *scene) refused(ctx context.Context, d *smallDisk) error {
	const inARow = 20
	taken, refused, size := int64(0), 0, 64<<10
	left := func() int64 { return d.left() - int64(s.sim.Counts().Acknowledged) - taken }
	return s.while(ctx, "pushes are refused", left, func() bool {
		switch code, _ := s.pushOf(ctx, size); {
		case code == http.StatusNoContent:
			taken, refused = taken+1, 0
		case code != http.StatusServiceUnavailable:
			refused = 0
		case size > 0: // a small push may fit where a large one did not
			size /= 4
		default:
			refused++
		}
		return refused == inARow
	})
}

// makeRoom removes the ballast. A push must be taken, and the workspace's must be taken when it
// tries again.
func (s *scene) makeRoom(ctx context.Context, d *smallDisk) (time.Duration, error) {
	before := s.sim.Counts().Acknowledged
	start := time.Now()
	if err := d.free(); err != nil {
		return 0, err
	}
	if err := s.until(ctx, "a push is taken, now that there is space", func() bool {
		code, _ := s.push(ctx)
		return code == http.StatusNoContent
	}); err != nil {
		return 0, err
	}
	took := time.Since(start).Round(10 * time.Millisecond)
	return took, s.until(ctx, "the workspace pushes again", func() bool { return s.sim.Counts().Acknowledged > before })
}

// fullInDelivery lets Kafka's backlog grow, fills the disk, and brings Kafka back: it
// must get every acknowledged event while the disk is still full.
func fullInDelivery(ctx context.Context, s *scene, d *smallDisk) error {
	s.kafkaProxy.set(fault{refuse: true})
	if err := s.waitAcknowledged(ctx, s.sim.Counts().Acknowledged+uint64(2*s.t.rate)); err != nil {
		return err
	}
	if err := s.fillAndWatch(ctx, d); err != nil {
		return fmt.Errorf("full during delivery: %w", err)
	}
	s.kafkaProxy.set(fault{})
	want := int64(s.sim.Counts().Acknowledged)
	if err := s.kafkaGets(ctx, want, "Kafka gets the backlog while the disk is full"); err != nil {
		return err
	}
	took, err := s.makeRoom(ctx, d)
	if err != nil {
		return fmt.Errorf("full during delivery: %w", err)
	}
	s.t.remark("delivery: went on while full, a push taken after %s", took)
	return nil
}

// fullAtStart kills the relay on the full disk and starts it there.
func fullAtStart(ctx context.Context, s *scene, d *smallDisk) error {
	if err := s.fillAndWatch(ctx, d); err != nil {
		return fmt.Errorf("full before the start: %w", err)
	}
	s.relay.kill()
	if err := s.start(); err != nil {
		return err
	}
	if err := s.refused(ctx, d); err != nil {
		return fmt.Errorf("full at the start: %w", err)
	}
	if err := s.hold(ctx, 2*time.Second); err != nil {
		return fmt.Errorf("full at the start: %w", err)
	}
	took, err := s.makeRoom(ctx, d)
	if err != nil {
		return fmt.Errorf("full at the start: %w", err)
	}
	s.t.remark("start: a push taken after %s", took)
	return nil
}

// smallDisk is a small file system.
type smallDisk struct {
	path, ballast string
	random        *rand.Rand // how much space the ballast leaves
	tracer        string     // strace; empty if there is none
	cutShort      int        // writes, in total
}

const diskBytes = 192 << 20

func mountDisk(path string) (*smallDisk, error) {
	if err := os.Mkdir(path, 0o700); err != nil {
		return nil, err
	}
	if err := unix.Mount("torture", path, "tmpfs", 0, fmt.Sprintf("size=%d", diskBytes)); err != nil {
		return nil, errors.Join(err, os.Remove(path))
	}
	return &smallDisk{path: path, ballast: filepath.Join(path, "ballast")}, nil
}

func (d *smallDisk) unmount() {
	_ = unix.Unmount(d.path, unix.MNT_DETACH) // goes when the last file is closed
}

// fill writes until there is no space left, and then frees some, so that the relay reaches the
// end at any place of its writes.
func (d *smallDisk) fill() error {
	f, err := os.Create(d.ballast)
	if err != nil {
		return err
	}
	for piece := make([]byte, 1<<20); err == nil; {
		_, err = f.Write(piece)
	}
	if !errors.Is(err, unix.ENOSPC) {
		return errors.Join(fmt.Errorf("fill the disk: %w", err), f.Close())
	}
	info, err := f.Stat()
	if err == nil {
		err = f.Truncate(info.Size() - d.random.Int64N(256<<10))
	}
	return errors.Join(err, f.Close())
}

// left is the disk's free space in bytes.
func (d *smallDisk) left() int64 {
	var at unix.Statfs_t
	if err := unix.Statfs(d.path, &at); err != nil {
		return math.MaxInt64
	}
	return int64(at.Bavail) * at.Bsize
}

func (d *smallDisk) free() error { return os.Remove(d.ballast) }
