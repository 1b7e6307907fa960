package disk

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/auditrelay/auditrelay/internal/store"
)

// many is how often a random test runs: in full, less often in a short run, or as FAULTS says.
func many(t *testing.T, full, few uint64, short bool) (n uint64) {
	if text := os.Getenv("FAULTS"); text != "" {
		_, err := fmt.Sscan(text, &n)
		require.NoError(t, err)
		return n
	}
	if short {
		return few
	}
	return full
}

// live makes a store with a past: appends, values, trims, kills and power cuts. It returns
// the files as they were somewhere in between.
func live(m *model) (earlier map[string][]byte) {
	for range 10 + m.rng.IntN(60) {
		m.append()
		m.put()
		m.putLazy()
	}
	earlier = m.fs.snapshot()
	for range m.rng.IntN(60) {
		switch m.append(); m.rng.IntN(30) {
		case 0:
			m.trim()
		case 1:
			m.put()
		case 2:
			m.kill()
		case 3:
			m.cutPower()
		}
	}
	m.leave()
	if m.rng.IntN(2) == 0 {
		m.boot[0]++ // a clean power cut: everything was written
	}
	return earlier
}

// goesOn checks that the store takes records after a fault, and keeps them.
func goesOn(m *model, what string) {
	before := len(m.acked)
	m.append()
	require.Greater(m, len(m.acked), before, "it takes records after %s; seed %d", what, m.seed)
	m.check()
	m.kill()
	m.check()
	m.leave()
}

// TestAnyOneFaultIsNamed harms one file of a store that was killed, or that met a power cut,
// and reads everything back: each acknowledged record is there or named as lost, and the
// store takes new ones.
func TestAnyOneFaultIsNamed(t *testing.T) {
	t.Parallel()
	for seed := range many(t, 1000, 40, testing.Short()) {
		m := newModel(t, seed)
		earlier := live(m)
		what := m.fs.harm(m.rng, earlier)
		m.damaged = true
		m.open()
		m.check()
		goesOn(m, what)
	}
}

// die opens the store in a process that is killed after some changes to its files, or that
// meets a power cut there.
func (m *model) die(changes int) {
	m.fs.left = changes
	s, err := open(Config{Dir: "/s", Salvage: "/salvage", Writer: "test", Logger: discard}, m.fs, m.boot)
	if err == nil {
		if l, err := s.Log(context.Background(), "events", m.opts); err == nil {
			for _, err := range l.Read(context.Background(), 1, false) {
				if err != nil {
					break
				}
			}
		} else {
			require.ErrorIs(m, err, errKilled, "seed %d", m.seed)
		}
		s.stop()
		<-s.stopped
	} else {
		require.ErrorIs(m, err, errKilled, "seed %d", m.seed)
	}
	m.fs.left = -1
	if m.rng.IntN(3) == 0 && !m.damaged {
		m.fs.cutPower()
		m.boot[0]++
		m.cuts++
	}
}

// TestAKillInARecoveryCostsNothing harms one file, and kills the recovery from that up to
// three times; without harm there are power cuts, too. Together they are two faults: a power cut takes
// back an end mark that was not synced, and only that knew of the newest records that were harmed.
func TestAKillInARecoveryCostsNothing(t *testing.T) {
	t.Parallel()
	for seed := range many(t, 300, 20, testing.Short()) {
		m := newModel(t, seed)
		earlier := live(m)
		what := "nothing"
		if m.rng.IntN(3) > 0 {
			what = m.fs.harm(m.rng, earlier)
			m.damaged = true
		}
		for range 1 + m.rng.IntN(3) {
			m.die(m.rng.IntN(25))
		}
		m.open()
		m.check()
		goesOn(m, what+", and kills")
	}
}

// TestAFaultInARecoveryCostsNothing harms one file, and has an operation fail in each of the recoveries from
// that, or the disk be full, or the salvage folder take nothing: what they take is there afterwards, and
// nothing else is missing.
func TestAFaultInARecoveryCostsNothing(t *testing.T) {
	t.Parallel()
	for seed := range many(t, 300, 20, testing.Short()) {
		m := newModel(t, seed)
		earlier := live(m)
		what := "nothing"
		if m.rng.IntN(3) > 0 {
			what = m.fs.harm(m.rng, earlier)
			m.damaged = true
		}
		for range 1 + m.rng.IntN(3) {
			switch m.rng.IntN(4) {
			case 0:
				m.fs.fail = diskFull
			case 1:
				m.fs.fail = salvageRefused
			default:
				m.failOnce()
			}
			m.open()
			for range m.rng.IntN(3) {
				m.append()
				m.put()
				m.trim()
			}
			m.fs.fail = nil
			m.leave()
		}
		m.open()
		m.check()
		goesOn(m, what+", and faults in the recovery")
	}
}

// diskFull is how a full disk fails.
func diskFull(op, path string) error {
	grows := strings.HasSuffix(path, segmentSuffix) || strings.HasSuffix(path, ".new")
	if op == "allocate" || op == "write" && grows { // the slots of the marks are there already
		return unix.ENOSPC
	}
	return nil
}

// salvageRefused is how a salvage folder fails that takes nothing.
func salvageRefused(_, path string) error {
	if strings.HasPrefix(path, "/salvage") {
		return unix.EACCES
	}
	return nil
}

// Where writes fail, there is no room, whatever was allocated before. As soon as they succeed
// there is some.
func TestThereIsNoRoomWhileWritesFail(t *testing.T) {
	t.Parallel()
	for seed := range uint64(10) {
		m := newModel(t, seed)
		m.append()
		log := m.log.(*Log)
		m.fs.fail = func(op, path string) error {
			if op == "write" && strings.HasSuffix(path, segmentSuffix) {
				return unix.EIO
			}
			return nil
		}
		for range 3 {
			_, err := m.log.Append(t.Context(), store.Draft{Data: make([]byte, 100)})
			require.ErrorIs(t, err, unix.EIO)
			require.ErrorIs(t, log.Room(t.Context(), 100), unix.EIO)
		}
		m.fs.fail = nil
		require.NoError(t, log.Room(t.Context(), 100))
		m.append()
		m.check()
		m.kill()
		m.check()
		m.leave()
	}
}
