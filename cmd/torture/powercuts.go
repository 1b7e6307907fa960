package main

import (
	"context"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"

	"github.com/auditrelay/auditrelay/internal/testbed/powercut"
)

// powerCuts has the relay's data directory on a disk that loses, at one instant, all that was
// not synced: bytes and names. In some rounds a part of it is there nevertheless, as after a
// cut in the middle of a write-back. Whatever was acknowledged must arrive.
func powerCuts(ctx context.Context, t *trial) error {
	dir := filepath.Join(t.dir, "disk")
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	d := powercut.New()
	if err := d.Mount(dir); err != nil {
		return &skip{"a file system of our own cannot be mounted (it takes root and /dev/fuse): " + err.Error()}
	}
	defer func() { _ = d.Unmount() }() // it goes with this process
	s, err := t.newScene(ctx, setting{dataDir: filepath.Join(dir, "data"), more: "journal: {max_bytes: 64MiB}\n"})
	if err != nil {
		return err
	}
	defer s.close()
	rng, torn := t.random(), 0
	for rounds := max(5, share(t.rounds, 10)); t.row.rounds < rounds; t.row.rounds++ {
		if err := s.boot(ctx, rng); err != nil {
			return err
		}
		if err := s.waitAcknowledged(ctx, s.sim.Counts().Acknowledged+1+rng.Uint64N(uint64(2*t.rate))); err != nil {
			return err
		}
		s.relay.kill()
		var survives *rand.Rand
		if t.row.rounds%2 == 1 {
			survives = rng
			torn++
		}
		if err := d.Cut(survives); err != nil {
			return err
		}
		t.progress("power cut %d, with %d events acknowledged", t.row.rounds+1, s.sim.Counts().Acknowledged)
	}
	if err := s.boot(ctx, rng); err != nil {
		return err
	}
	t.remark("after %d of the power cuts a part of what was not synced was there", torn)
	return s.settle(ctx)
}

// boot starts the relay on a machine that seems to have been started again, and waits until
// it takes pushes: it sees another boot id, in a namespace of its own.
func (s *scene) boot(ctx context.Context, rng *rand.Rand) error {
	var id [16]byte
	for i := range id {
		id[i] = byte(rng.Uint32())
	}
	h := hex.EncodeToString(id[:])
	file := filepath.Join(s.t.dir, "boot_id")
	if err := os.WriteFile(file, fmt.Appendf(nil, "%s-%s-%s-%s-%s\n", h[:8], h[8:12], h[12:16], h[16:20], h[20:]), 0o600); err != nil {
		return err
	}
	const script = `mount --bind "$0" /proc/sys/kernel/random/boot_id && exec "$@"`
	probe := exec.CommandContext(ctx, "/bin/sh", "-c", script, file, "cmp", "-s", file, "/proc/sys/kernel/random/boot_id")
	probe.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
	if out, err := probe.CombinedOutput(); err != nil {
		return &skip{fmt.Sprintf("a process cannot be given another boot id here: %v: %s", err, out)}
	}
	cmd := s.command("/bin/sh", "-c", script, file, s.binary, "run", "--config", s.config)
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
	if err := s.launch(cmd); err != nil {
		return err
	}
	return s.waitReady(ctx)
}
