package disk

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/auditrelay/auditrelay/internal/store"
)

// A store is opened and read on a full disk, after a clean end, a kill or a power cut. It
// refuses what is appended, and takes it once there is room.
func TestAStoreIsOpenedOnAFullDisk(t *testing.T) {
	t.Parallel()
	for seed := range uint64(40) {
		m := newModel(t, seed)
		for range 30 {
			m.append()
			m.put()
		}
		switch m.leave(); seed % 4 {
		case 1:
			m.boot[0]++
		case 2:
			m.fs.cutPower()
			m.boot[0]++
			m.cuts++
		case 3:
			m.open()
			require.NoError(t, m.store.Close())
		}
		m.fs.failWith(diskFull)
		m.open()
		m.check() // it ends the failure
		m.fs.failWith(diskFull)
		_, err := m.log.Append(context.Background(), store.Draft{Data: make([]byte, 100)})
		require.Error(t, err, "seed %d", seed)
		m.fs.failWith(nil)
		before := len(m.acked)
		m.append()
		require.Greater(t, len(m.acked), before, "seed %d", seed)
		m.put()
		m.check()
		m.kill()
		m.check()
		m.leave()
	}
}

// A missing file, or one that has no place in the log, refuses no start on a full disk either,
// where it can neither be made again nor moved aside.
func TestAMissingOrStrayFileOnAFullDiskRefusesNoStart(t *testing.T) {
	t.Parallel()
	for name, harm := range map[string]func(m *model) error{
		"the end mark is missing":       func(m *model) error { return m.fs.Remove("/s/events.end") },
		"the lazy values are missing":   func(m *model) error { return m.fs.Remove("/s/lazy") },
		"one file of values is missing": func(m *model) error { return m.fs.Remove("/s/values.a") },
		"the segment is missing":        func(m *model) error { return m.fs.Remove("/s/events/" + segmentName(1)) },
		"the log's folder is missing": func(m *model) error {
			names, err := m.fs.Names("/s/events")
			for _, name := range names {
				err = errors.Join(err, m.fs.Remove("/s/events/"+name))
			}
			return err
		},
		"a stray file": func(m *model) error {
			f, err := m.fs.Open("/s/events/"+segmentName(1000), toMake)
			if err == nil {
				_, err = f.WriteAt(make([]byte, 20_000), 0)
			}
			return err
		},
	} {
		for seed := range uint64(4) {
			m := newModel(t, seed)
			for range 10 {
				m.append()
				m.put()
			}
			m.leave()
			require.NoError(t, harm(m), name)
			m.damaged = true
			bare := name == "the log's folder is missing"
			m.fs.failWith(func(op, path string) error {
				switch {
				case op == "allocate", op == "write", op == "rename", bare && op == "mkdir":
					return unix.ENOSPC
				case bare && strings.HasPrefix(op, "open") && strings.HasPrefix(path, "/s/events/"):
					return unix.ENOENT
				}
				return nil
			})
			m.open()
			_, err := m.log.Append(context.Background(), store.Draft{Data: make([]byte, 100)})
			require.Error(t, err, name)
			require.Error(t, m.store.table.PutLazy(context.Background(), "l", []byte("1"), store.If{}), name)
			m.fs.failWith(nil)
			before := len(m.acked)
			m.append()
			require.Greater(t, len(m.acked), before, name)
			m.put()
			m.putLazy()
			m.check()
			m.kill()
			m.check()
			m.leave()
		}
	}
}

// openStopped opens the store without what it does by itself, so that the test alone has it write its log.
func (l *ledger) openStopped() *bytes.Buffer {
	var logged bytes.Buffer
	var err error
	l.store, err = open(Config{Dir: "/s", Salvage: "/salvage", Writer: "test", Logger: slog.New(slog.NewTextHandler(&logged, nil))}, l.fs, l.boot)
	require.NoError(l.T, err)
	l.store.stop()
	<-l.store.stopped
	return &logged
}

// On a full disk a durable value is not stored, and that is known: whoever puts it may go on without.
// The table stays as it was, and no file of it counts as damaged.
func TestAFullDiskTakesNoDurableValue(t *testing.T) {
	t.Parallel()
	for _, full := range []string{"values.a.new", "values.b.new"} {
		l := newLedger(t, 1)
		l.puts(10)
		l.leave()
		logged := l.openStopped()
		l.fs.failWith(func(op, path string) error {
			if op == "write" && strings.HasSuffix(path, full) {
				return unix.ENOSPC
			}
			return nil
		})
		_, err := l.store.table.Put(t.Context(), "k1", []byte("no room"), store.If{})
		require.ErrorIs(t, err, store.ErrFull)
		require.NotErrorIs(t, err, store.ErrUnknown)
		for range 3 {
			l.store.table.watch(true)
		}
		require.Empty(t, logged.String())
		for _, next := range []string{valuesA + ".new", valuesB + ".new"} {
			require.NotContains(t, l.fs.snapshot(), next, "it would take room")
		}
		l.fs.failWith(nil)
		l.open()
		require.Equal(t, l.newest["k1"], string(l.get("k1").Data))
		l.put("k1")
		l.leave()
		l.open()
		require.Equal(t, l.newest["k1"], string(l.get("k1").Data))
		l.leave()
	}
}

// A damaged file that cannot be written again, as the disk is full, is named once.
func TestADamagedFileOnAFullDiskIsNamedOnce(t *testing.T) {
	t.Parallel()
	l := newLedger(t, 1)
	l.puts(10)
	l.leave()
	logged := l.openStopped()
	require.NoError(t, l.fs.Remove(valuesA))
	l.fs.failWith(diskFull)
	for range 3 {
		l.store.table.watch(false)
	}
	assert.Equal(t, 1, strings.Count(logged.String(), "removed or damaged"), logged.String())
	assert.Equal(t, 1, strings.Count(logged.String(), "cannot be written again"), logged.String())
	assert.Contains(t, logged.String(), "no space left on device")
	l.fs.failWith(nil)
	l.store.table.watch(false)
	require.Contains(t, l.fs.snapshot(), valuesA)
	assert.Contains(t, logged.String(), "the files of the table are whole again")
}

// A quota that is spent is a full disk, whatever room the disk has, until it takes something again.
func TestASpentQuotaIsAFullDisk(t *testing.T) {
	t.Parallel()
	for name, write := range map[string]func(l *ledger) error{
		"a record": func(l *ledger) error {
			log, err := l.store.Log(t.Context(), "events", store.Options{})
			require.NoError(t, err)
			_, err = log.Append(t.Context(), store.Draft{Data: make([]byte, 100)})
			return err
		},
		"a value": func(l *ledger) error {
			_, err := l.store.table.Put(t.Context(), "k1", []byte("no room"), store.If{})
			return err
		},
	} {
		l := newLedger(t, 1)
		l.puts(1)
		require.NoError(t, l.store.Full(), name)
		l.fs.failWith(func(op, _ string) error {
			if op == "write" || op == "allocate" {
				return unix.EDQUOT
			}
			return nil
		})
		require.ErrorIs(t, write(l), store.ErrFull, name)
		for range 2 {
			require.ErrorIs(t, l.store.Full(), unix.EDQUOT, name)
		}
		l.fs.failWith(nil)
		require.NoError(t, l.store.Full(), name)
		require.NotContains(t, l.fs.snapshot(), "/s/probe.new", name)
		require.NoError(t, write(l), name)
		l.leave()
	}
}
