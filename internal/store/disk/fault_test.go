package disk

import (
	"bytes"
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

// TestAnyTwoFaultsAreNamed does so twice. Values may be lost then, as the table says. Where the end mark is
// harmed, and the newest segment ends with an earlier record, nothing tells of the later ones.
func TestAnyTwoFaultsAreNamed(t *testing.T) {
	t.Parallel()
	for seed := range many(t, 1000, 40, testing.Short()) {
		m := newModel(t, seed)
		earlier := live(m)
		before := m.fs.snapshot()
		what := m.fs.harm(m.rng, earlier)
		if len(m.fs.files("/s/")) > 0 {
			what += ", and " + m.fs.harm(m.rng, earlier)
		}
		if after := m.fs.snapshot(); m.endsEarly() && !bytes.Equal(before["/s/events"+endSuffix], after["/s/events"+endSuffix]) {
			continue
		}
		m.damaged, m.twice = true, true
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
	if m.rng.IntN(3) == 0 && !m.erased {
		m.fs.cutPower()
		m.boot[0]++
		m.cuts++
	}
}

// erases reports whether harm may have left no trace of the newest records, so that after a power cut, which
// takes back the end mark, nothing tells of them: it hit a second file, changed more of the newest segment
// than two pages, or left only zeros after its last whole record.
func (m *model) erases(before map[string][]byte) bool {
	after, l := m.fs.snapshot(), m.log.(*Log)
	newest := l.segments[len(l.segments)-1]
	was, is := before[l.path(newest.base)], after[l.path(newest.base)]
	for path, b := range before {
		if path != l.path(newest.base) && !bytes.Equal(b, after[path]) {
			return !bytes.Equal(was, is)
		}
	}
	pages := 0
	for at := 0; at < len(was) && len(is) == len(was); at += pageSize {
		if end := min(len(was), at+pageSize); !bytes.Equal(was[at:end], is[at:end]) {
			pages++
		}
	}
	if pages > 2 || len(is) != len(was) {
		return true
	}
	return m.endsEarly()
}

// endsEarly reports whether the newest segment is there, but lacks its newest records, and only zeros stand in
// their place.
func (m *model) endsEarly() bool {
	l := m.log.(*Log)
	newest := l.segments[len(l.segments)-1]
	f, err := m.fs.Open(l.path(newest.base), toWrite)
	if err != nil {
		return false
	}
	length, err := f.Size()
	require.NoError(m, err)
	t := &tail{w: &window{f: f}, seed: newest.seed, end: newest.base - 1, offset: dataStart, length: length}
	t.run()
	return t.end < l.end && t.w.filled(t.offset, t.length) == t.offset
}

// TestAKillInARecoveryCostsNothing harms one file, and kills the recovery from that up to
// three times, or cuts the power there.
func TestAKillInARecoveryCostsNothing(t *testing.T) {
	t.Parallel()
	for seed := range many(t, 300, 20, testing.Short()) {
		m := newModel(t, seed)
		earlier := live(m)
		what := "nothing"
		if m.rng.IntN(3) > 0 {
			before := m.fs.snapshot()
			what = m.fs.harm(m.rng, earlier)
			m.damaged, m.erased = true, m.erases(before)
		}
		for range 1 + m.rng.IntN(3) {
			m.die(m.rng.IntN(25))
		}
		m.open()
		m.check()
		goesOn(m, what+", and kills")
	}
}

// A bit flips, or a page is lost, among the newest records, and a power cut takes back the end mark that
// knew of them. As many positions are named as may have been acknowledged, and none is given out again.
func TestHarmBeforeAPowerCutIsNamed(t *testing.T) {
	t.Parallel()
	tried := 0
	for seed := range many(t, 400, 100, testing.Short()) {
		m := newModel(t, seed)
		for n := range 20 + m.rng.IntN(100) {
			body := bytes.Repeat(fmt.Append(nil, n), 1+m.rng.IntN(100))
			pos, err := m.log.Append(t.Context(), store.Draft{Data: body})
			require.NoError(t, err)
			m.acked[pos], m.tried[string(body)] = body, true
		}
		m.leave()
		l, before := m.log.(*Log), m.fs.snapshot()
		path, at := l.path(l.segments[len(l.segments)-1].base), int(l.offset)-1-m.rng.IntN(5000)
		at = max(at, dataStart)
		harmed := bytes.Clone(before[path])
		if seed%2 == 0 {
			harmed[at] ^= 1 << m.rng.IntN(8)
		} else {
			from := at / pageSize * pageSize
			clear(harmed[from:min(len(harmed), from+pageSize)])
		}
		m.fs.set(path, harmed)
		if m.erases(before) {
			continue
		}
		tried++
		m.damaged = true
		m.cutPower()
		m.check()
		goesOn(m, "harm and a power cut")
	}
	require.Greater(t, tried, 20)
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
				m.fs.failWith(diskFull)
			case 1:
				m.fs.failWith(salvageRefused)
			default:
				m.failOnce()
			}
			m.open()
			for range m.rng.IntN(3) {
				m.append()
				m.put()
				m.trim()
			}
			m.fs.failWith(nil)
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
		m.fs.failWith(func(op, path string) error {
			if op == "write" && strings.HasSuffix(path, segmentSuffix) {
				return unix.EIO
			}
			return nil
		})
		for range 3 {
			_, err := m.log.Append(t.Context(), store.Draft{Data: make([]byte, 100)})
			require.ErrorIs(t, err, unix.EIO)
			require.ErrorIs(t, log.Room(t.Context(), 100), unix.EIO)
		}
		m.fs.failWith(nil)
		require.NoError(t, log.Room(t.Context(), 100))
		m.append()
		m.check()
		m.kill()
		m.check()
		m.leave()
	}
}
