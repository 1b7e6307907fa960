package disk

import (
	"bytes"
	"context"
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/auditrelay/auditrelay/internal/store"
)

// After a failed sync the next record begins another segment: no later sync of the file counts.
func TestAFailedSyncEndsASegment(t *testing.T) {
	t.Parallel()
	m := newModel(t, 1)
	m.append()
	l := m.log.(*Log)
	undo := m.failAt("sync", segmentSuffix)
	_, err := l.Append(context.Background(), store.Draft{})
	require.ErrorIs(t, err, store.ErrUnknown)
	undo()
	m.append()
	assert.Len(t, l.segments, 2)
	m.leave()
}

// A start that takes records after the end mark makes them durable first: a power cut after
// it costs none of what was read.
func TestWhatAStartBelievesIsDurable(t *testing.T) {
	t.Parallel()
	m := newModel(t, 1)
	m.append()
	undo := m.failAt("sync", segmentSuffix)
	_, err := m.log.Append(context.Background(), store.Draft{Data: []byte("only in the kernel's memory")})
	require.ErrorIs(t, err, store.ErrUnknown)
	undo()
	m.kill()
	before, _ := read(t, m.log)
	require.Len(t, before, len(m.acked)+1, "it is there")
	require.NoError(t, m.log.(*Log).mark.sync())
	m.leave()
	for _, n := range m.fs.names { // no page that was not synced is lucky
		clear(n.dirty)
	}
	m.fs.cutPower()
	m.boot[0]++
	m.open()
	after, gaps := read(t, m.log)
	assert.Equal(t, before, after)
	assert.Empty(t, gaps)
	m.leave()
}

// If the disk does not take them, they were never there, and their positions are given to others.
func TestWhatTheDiskDoesNotTakeIsNotBelieved(t *testing.T) {
	t.Parallel()
	m := newModel(t, 1)
	m.append()
	undo := m.failAt("sync", segmentName(1))
	_, err := m.log.Append(context.Background(), store.Draft{Data: []byte("only in the kernel's memory")})
	require.ErrorIs(t, err, store.ErrUnknown)
	m.leave()
	m.open()
	undo()
	m.check()
	records, _ := read(t, m.log)
	require.Len(t, records, len(m.acked))
	m.append()
	m.kill()
	m.check()
	m.leave()
}

// A write for which there was no room leaves nothing that a start would have to name.
func TestAWriteWithoutRoomLeavesNothing(t *testing.T) {
	t.Parallel()
	m := newModel(t, 1)
	m.append()
	m.fs.failWith(func(op, _ string) error {
		if op == "write" {
			return unix.ENOSPC
		}
		return nil
	})
	for range 5 {
		_, err := m.log.Append(context.Background(), store.Draft{Data: bytes.Repeat([]byte{1}, 9000)})
		require.ErrorIs(t, err, store.ErrFull)
	}
	m.fs.failWith(nil)
	m.leave()
	m.boot[0]++
	m.open()
	_, gaps := read(t, m.log)
	assert.Empty(t, gaps)
	m.leave()
}

// An end mark that is not the newest one is no reason to cut what was acknowledged since:
// the newest slot is damaged, or an older file was put back. With other damage on top, what
// cannot be read is named.
func TestAnOlderMarkCutsNothing(t *testing.T) {
	t.Parallel()
	for _, putBack := range []bool{false, true} {
		m := newModel(t, 1)
		m.append()
		m.append()
		earlier := m.fs.snapshot()["/s/events.end"]
		m.append()
		m.append()
		if putBack {
			m.append()
		}
		last := slices.Max(slices.Collect(maps.Keys(m.acked)))
		l := m.log.(*Log)
		at := l.mark.at(0, l.mark.values[markKey].number)
		m.leave()
		if putBack {
			m.fs.set("/s/events.end", earlier)
		} else {
			m.fs.names["/s/events.end"].cache[at+20] ^= 1
		}
		rotten := m.fs.names[l.path(1)]
		rotten.cache[l.offset-1] ^= 1 // the checksum of the last record
		m.damaged = true
		m.open()
		m.check()
		assert.NotEmpty(t, m.gaps[last])
		m.append()
		m.kill()
		m.check()
		m.leave()
	}
}
