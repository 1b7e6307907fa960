package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// shortWrites bounds the size of the running relay's files, a little above the present size of
// one. The write that reaches the bound is cut short, and those after it fail: a Go program
// gets EFBIG, and is not ended by SIGXFSZ. Then the bound is lifted, and the relay must recover
// by itself; or it is killed with the torn record in its file.
func shortWrites(ctx context.Context, t *trial) error {
	tracer, err := exec.LookPath("strace")
	if err != nil {
		return &skip{"strace is not installed, which counts the writes that were cut short"}
	}
	// The journal's newest file can then be the largest.
	s, err := t.running(ctx, setting{rotate: "rotate_bytes: 1MiB"})
	if err != nil {
		return err
	}
	defer s.close()
	rng, killed := t.random(), 0
	cut := map[string]int{}
	// Half of the rounds are about the journal, and one may have its bound between two writes.
	for rounds := max(4, share(t.rounds, 16)); t.row.rounds < rounds; t.row.rounds++ {
		if err := s.waitAcknowledged(ctx, s.sim.Counts().Acknowledged+1+rng.Uint64N(uint64(t.rate)+1)); err != nil {
			return err
		}
		if err := s.boundFiles(ctx, tracer, rng, cut); err != nil {
			return err
		}
		if t.row.rounds%4 < 2 {
			err = s.bound(unix.RLIM_INFINITY)
		} else {
			s.relay.kill()
			killed++
			err = s.startReady(ctx)
		}
		if err != nil {
			return err
		}
	}
	if err := s.waitAcknowledged(ctx, s.sim.Counts().Acknowledged+1); err != nil {
		return err
	}
	t.remark("writes cut short: journal %d, file sink %d, others %d; then %d times back by itself, %d times killed",
		cut[".seg"], cut[".jsonl"], cut[""], t.row.rounds-killed, killed)
	if cut[".seg"] == 0 {
		return errors.New("no write to the journal was cut short, so nothing is proven about that")
	}
	if err := s.settle(ctx); err != nil {
		return err
	}
	return s.nothingQuarantined(ctx)
}

// boundFiles bounds the files for a while, and counts short writes by the file's
// suffix.
func (s *scene) boundFiles(ctx context.Context, tracer string, rng *rand.Rand, cut map[string]int) error {
	trace, err := s.attach(ctx, tracer, onlyWrites...)
	if err != nil {
		return err
	}
	defer trace.detach()
	size, err := s.largest(s.t.row.rounds%2 == 1)
	if err != nil {
		return err
	}
	// The file grows while the bound is set.
	most := uint64(size) + 32<<10 + rng.Uint64N(64<<10)
	s.t.progress("round %d: no file beyond %d bytes", s.t.row.rounds+1, most)
	if err := s.bound(most); err != nil {
		return err
	}
	if err := s.hold(ctx, chaos); err != nil {
		return err
	}
	trace.detach()
	all, err := trace.shorts()
	for _, w := range all {
		cut[known(filepath.Ext(w.path))]++
	}
	return err
}

// bound sets the greatest size of the relay's files.
func (s *scene) bound(most uint64) error {
	limit := unix.Rlimit{Cur: most, Max: unix.RLIM_INFINITY}
	if err := unix.Prlimit(s.relay.cmd.Process.Pid, unix.RLIMIT_FSIZE, &limit, nil); err != nil {
		return &skip{"the limits of another process cannot be set here: " + err.Error()}
	}
	return nil
}

// known returns a suffix that is counted separately.
func known(suffix string) string {
	if suffix == ".seg" || suffix == ".jsonl" {
		return suffix
	}
	return ""
}

// largest is where the journal's newest file goes on, or the size of the file sink's file.
func (s *scene) largest(ofSink bool) (int64, error) {
	if !ofSink {
		all, err := s.files().Records(eventsLog)
		if errors.Is(err, fs.ErrNotExist) || err == nil && len(all) == 0 {
			return 0, nil // the journal has let the file go
		}
		if err != nil {
			return 0, err
		}
		return endOf(all), nil
	}
	info, err := os.Stat(s.file.Path)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil // the sink rotates its file
	}
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

// nothingQuarantined fails if the quarantine of the stopped relay names anything, since an
// unacknowledged event is no loss.
func (s *scene) nothingQuarantined(ctx context.Context) error {
	all, err := s.files().Quarantined(ctx)
	if err == nil && len(all) > 0 {
		err = fmt.Errorf("the quarantine names what was never acknowledged: %+v", all[0])
	}
	return err
}
