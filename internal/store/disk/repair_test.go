package disk

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/auditrelay/auditrelay/internal/store"
	"github.com/auditrelay/auditrelay/internal/testbed/waiting"
)

// failAt makes an operation fail on files with a suffix, until it is undone.
func (m *model) failAt(op, suffix string) (undo func()) {
	m.fs.failWith(func(did, path string) error {
		if did == op && strings.HasSuffix(path, suffix) {
			return unix.EIO
		}
		return nil
	})
	return func() { m.fs.failWith(nil) }
}

// An end mark whose file cannot be written or synced any more gets another file, and appends
// go on. Where that is not possible either, nothing is acknowledged until it is.
func TestAMarkThatFailsIsReplaced(t *testing.T) {
	t.Parallel()
	for _, op := range []string{"write", "sync"} {
		m := newModel(t, 1)
		m.append()
		undo := m.failAt(op, "/events.end")
		for range 10 {
			before := len(m.acked)
			m.append()
			require.Greater(t, len(m.acked), before, "after a failed %s", op)
			require.NoError(t, m.log.(*Log).mark.sync())
		}
		undo()
		m.fs.failWith(func(did, path string) error {
			if did == "write" && strings.Contains(path, "/events.end") {
				return unix.EIO
			}
			return nil
		})
		_, err := m.log.Append(context.Background(), store.Draft{Data: []byte("x")})
		require.ErrorIs(t, err, store.ErrUnknown)
		m.tried["x"] = true
		m.fs.failWith(nil)
		m.append()
		require.NoError(t, m.log.(*Log).mark.sync())
		m.kill()
		m.check()
		m.cutPower()
		m.check()
		m.leave()
	}
}

// A power cut after a failed sync of the end mark finds the mark that was synced since.
func TestAFailedSyncOfAMarkIsMadeUpFor(t *testing.T) {
	t.Parallel()
	m := newModel(t, 1)
	m.append()
	failed := false
	m.fs.failWith(func(did, path string) error {
		if did == "sync" && strings.HasSuffix(path, "/events.end") && !failed {
			failed = true
			return unix.EIO
		}
		return nil
	})
	require.NoError(t, m.log.(*Log).mark.sync())
	require.True(t, failed)
	end := m.log.(*Log).end
	m.leave()
	m.fs.cutPower()
	s := &Store{fs: m.fs, cfg: Config{Dir: "/s"}, log: discard}
	mark, err := openSlots(s, "/s/events.end", "end of events")
	require.NoError(t, err)
	require.Equal(t, end, parseMark(mark.value()).End)
}

// harmDisk changes what the disk has, while the kernel's memory keeps what was written.
func (m *memFS) harmDisk(path string, at int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.names[path].disk[at] ^= 1
}

// A scrub sees what the disk has and not what is in memory, and mends marks and headers.
func TestAScrubReadsTheDisk(t *testing.T) {
	t.Parallel()
	m := newModel(t, 2)
	for range 30 {
		_, err := m.log.Append(context.Background(), store.Draft{Data: make([]byte, 20<<10)})
		require.NoError(t, err)
	}
	l := m.log.(*Log)
	require.NoError(t, l.mark.sync())
	first := l.path(l.segments[0].base)
	m.fs.harmDisk(first, 3*pageSize)
	m.fs.harmDisk(first, pageSize+20)
	m.fs.harmDisk("/s/events.end", dataStart+20)
	_, gaps := read(t, m.log)
	require.Empty(t, gaps, "memory has it")
	var scrubbed []store.Gap
	for gap, err := range m.log.Scrub(t.Context()) {
		require.NoError(t, err)
		scrubbed = append(scrubbed, gap)
	}
	require.Len(t, scrubbed, 1)
	assert.Equal(t, store.Damaged, scrubbed[0].Why)
	assert.Equal(t, scrubbed[0].From, scrubbed[0].To)
	assert.Contains(t, m.fs.files("/salvage"), scrubbed[0].Kept)
	f, err := m.fs.Open(first, toWrite)
	require.NoError(t, err)
	f.Forget(0)
	header, bad, err := readHeader(f, first)
	require.NoError(t, err)
	assert.NotNil(t, header)
	assert.Equal(t, int64(-1), bad, "the header's copy is mended")
	v, err := openSlots(m.store, "/s/events.end", "end of events")
	require.NoError(t, err)
	assert.False(t, v.damaged)
	m.leave()
	m.open()
	_, again := read(t, m.log)
	assert.Equal(t, scrubbed, again, "the same gap, kept in the same file")
	m.leave()
}

// A start mends a damaged copy of a header, whichever it is.
func TestAStartMendsAHeader(t *testing.T) {
	t.Parallel()
	for _, at := range []int{30, pageSize + 30} {
		m := newModel(t, 2)
		m.append()
		m.leave()
		path := m.log.(*Log).path(1)
		m.fs.names[path].cache[at] ^= 1
		m.open()
		f, err := m.fs.Open(path, toWrite)
		require.NoError(t, err)
		_, bad, err := readHeader(f, path)
		require.NoError(t, err)
		assert.Equal(t, int64(-1), bad)
		m.check()
		m.leave()
	}
}

// Damage to all copies of values is mended from memory while the store is open.
func TestTheTableIsMendedFromMemory(t *testing.T) {
	t.Parallel()
	m := newModel(t, 3)
	for range 40 {
		m.put()
		m.putLazy()
	}
	require.NoError(t, m.store.table.Sync(t.Context()))
	for _, path := range []string{"/s/values.a", "/s/values.b", "/s/lazy"} {
		for at := dataStart; at < len(m.fs.names[path].disk); at += 100 {
			m.fs.harmDisk(path, at)
		}
	}
	m.store.table.watch(true)
	m.leave()
	m.fs.cutPower()
	m.open()
	m.check()
	for key := range m.values {
		v, err := m.store.table.Get(t.Context(), key)
		require.NoError(t, err)
		require.False(t, v.Doubtful)
	}
	for key, may := range m.lazy {
		v, err := m.store.table.Get(t.Context(), key)
		require.NoError(t, err)
		require.Equal(t, may[len(may)-1], string(v.Data))
	}
	m.leave()
}

// After a failed sync, lazy values count as durable only once another file has them.
func TestAFailedSyncOfLazyValues(t *testing.T) {
	t.Parallel()
	m := newModel(t, 3)
	for range 40 {
		m.putLazy()
	}
	undo := m.failAt("sync", "lazy")
	m.fs.failWith(func(did, path string) error {
		if did == "sync" && strings.HasPrefix(path, "/s/lazy") {
			return unix.EIO
		}
		return nil
	})
	require.Error(t, m.store.table.Sync(t.Context()))
	undo()
	require.NoError(t, m.store.table.Sync(t.Context()))
	m.leave()
	m.fs.cutPower()
	m.open()
	for key, may := range m.lazy {
		v, err := m.store.table.Get(t.Context(), key)
		require.NoError(t, err)
		require.Equal(t, may[len(may)-1], string(v.Data))
	}
	m.leave()
}

// A lazy value that was removed does not come back.
func TestARemovedLazyValueStaysAway(t *testing.T) {
	t.Parallel()
	f := openFolder(t).(*folder)
	for i := range 20 {
		require.NoError(t, f.Table().PutLazy(t.Context(), fmt.Sprint("old", i), []byte("1"), store.If{}))
		require.NoError(t, f.Table().PutLazy(t.Context(), fmt.Sprint("old", i), []byte("2"), store.If{}))
		require.NoError(t, f.Table().PutLazy(t.Context(), fmt.Sprint("old", i), nil, store.If{}))
	}
	f.Kill(t)
	for i := range 20 {
		require.NoError(t, f.Table().PutLazy(t.Context(), fmt.Sprint("new", i), []byte("3"), store.If{}))
	}
	f.Kill(t)
	values, err := f.Table().List(t.Context(), "")
	require.NoError(t, err)
	require.Len(t, values, 20)
	for _, v := range values {
		assert.True(t, strings.HasPrefix(v.Key, "new"), v.Key)
	}
}

// Without any traffic, a folder that was removed shows in Err, and files that can be made
// again are.
func TestARemovedFileShowsWithoutTraffic(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		path string
		gone bool
	}{
		{"", true},
		{"events", true},
		{filepath.Join("events", segmentName(1)), true},
		{"events.end", false},
		{"lazy", false},
		{"values.a", false},
		{"values.b", false},
	} {
		f := openFolder(t).(*folder)
		l, err := f.store.Log(t.Context(), "events", store.Options{MaxBytes: 2 << 20})
		require.NoError(t, err)
		for range 9 {
			appendTo(t, l, 60<<10)
		}
		require.NoError(t, l.Trim(t.Context(), 3))
		_, err = f.Table().Put(t.Context(), "durable", []byte("1"), store.If{})
		require.NoError(t, err)
		require.NoError(t, f.Table().PutLazy(t.Context(), "lazy", []byte("2"), store.If{}))
		require.NoError(t, f.store.Err())
		path := test.path
		if strings.HasSuffix(path, segmentSuffix) {
			path = filepath.Join("events", segmentName(l.(*Log).segments[len(l.(*Log).segments)-1].base))
		}
		// The store makes a mark again now and then, perhaps between two steps of the removal.
		waiting.Until(t, func() bool { return os.RemoveAll(filepath.Join(f.cfg.Dir, path)) == nil }, "%s is removed", path)
		f.store.syncLazily(t.Context())
		if test.gone {
			require.ErrorIs(t, f.store.Err(), store.ErrGone, path)
			_, err := l.Append(t.Context(), store.Draft{})
			require.ErrorIs(t, err, store.ErrGone, path)
		} else {
			require.NoError(t, f.store.Err(), path)
			require.FileExists(t, filepath.Join(f.cfg.Dir, path))
			records, gaps := read(t, l)
			f.Kill(t)
			l, err := f.store.Log(t.Context(), "events", store.Options{MaxBytes: 2 << 20})
			require.NoError(t, err)
			again, gapsAgain := read(t, l)
			require.Equal(t, records, again, path)
			require.Equal(t, gaps, gapsAgain, path)
			for key, want := range map[string]string{"durable": "1", "lazy": "2"} {
				v, err := f.Table().Get(t.Context(), key)
				require.NoError(t, err)
				require.Equal(t, store.Value{Key: key, Rev: 1, Data: []byte(want)}, v, path)
			}
		}
	}
}

// tear leaves the first half of a record after the end of the log, as a write does that was
// not synced when the power went.
func (m *model) tear() {
	l := m.log.(*Log)
	b := appendFrame(nil, store.Draft{Data: []byte("perhaps somebody was told about this")}, 0)
	finish(b, l.segments[len(l.segments)-1].seed, l.offset, l.end+1, l.end, l.newest)
	m.leave()
	n := m.fs.names[l.path(l.segments[len(l.segments)-1].base)]
	n.cache = append(n.cache[:l.offset:l.offset], b[:60]...)
	n.disk = append([]byte{}, n.cache...)
}

// What a power cut tore is named as possibly acknowledged, with its bytes, at each start and
// for each reader. After a kill it is cut, since nobody was told about it.
func TestATornWriteIsNamedAfterAPowerCut(t *testing.T) {
	t.Parallel()
	for _, seed := range []uint64{1, 2} { // without and with rooms that are allocated
		m := newModel(t, seed)
		for range 5 {
			m.append()
		}
		m.tear()
		m.open()
		m.check()
		require.Empty(t, m.gaps, "after a kill")
		m.append()
		end := m.log.(*Log).end
		m.leave()
		m.boot[0]++ // nothing was being written now
		m.open()
		_, gaps := read(t, m.log)
		require.Empty(t, gaps, "nothing of the torn write is left")
		m.tear()
		m.boot[0]++
		m.cuts++
		m.open()
		for range 3 {
			records, gaps := read(t, m.log)
			require.Len(t, gaps, 1)
			assert.Equal(t, store.Gap{From: end + 1, To: gaps[0].To, Why: store.Doubtful, Kept: gaps[0].Kept}, gaps[0])
			assert.Less(t, gaps[0].To, end+2*pageSize/(headSize+sumSize), "no more than fit there")
			require.Contains(t, m.fs.names, gaps[0].Kept)
			assert.Contains(t, string(m.fs.names[gaps[0].Kept].cache), "perhaps")
			assert.NotContains(t, records, end+1)
			for gap, err := range m.log.Scrub(t.Context()) {
				require.NoError(t, err)
				assert.Equal(t, gaps[0], gap)
			}
			m.append()
			assert.Contains(t, m.acked, m.log.(*Log).end)
			m.kill()
			m.check()
		}
		m.leave()
	}
}

// A record that was whole at the last start, and is damaged since, shows to a reader and at
// the next start, and is no longer called possibly acknowledged.
func TestLaterDamageShows(t *testing.T) {
	t.Parallel()
	m := newModel(t, 1)
	for range 5 {
		m.append()
	}
	m.tear()
	m.boot[0]++
	m.open()
	m.append()
	m.kill()
	places := m.log.(*Log).segments
	n := m.fs.names[m.log.(*Log).path(places[0].base)]
	n.cache[dataStart+headSize+3] ^= 1
	m.damaged = true
	for range 2 {
		_, gaps := read(t, m.log)
		require.Len(t, gaps, 2)
		assert.Equal(t, store.Damaged, gaps[0].Why)
		assert.Equal(t, store.Doubtful, gaps[1].Why)
		m.kill()
	}
	m.leave()
}

// The salvage folder is bounded, also over many starts. What does not fit is named all the
// same.
func TestTheSalvageFolderIsBounded(t *testing.T) {
	t.Parallel()
	m := newModel(t, 1)
	f, err := m.fs.Open("/salvage/earlier", toMake)
	require.NoError(t, err)
	m.append()
	require.NoError(t, f.Truncate(100))
	m.store.kept = maxSalvage - 50
	path := m.log.(*Log).path(1)
	m.fs.names[path].cache[dataStart+headSize+3] ^= 1
	m.damaged = true
	_, gaps := read(t, m.log)
	require.Len(t, gaps, 1)
	assert.Empty(t, gaps[0].Kept)
	m.kill()
	_, gaps = read(t, m.log)
	require.Len(t, gaps, 1)
	assert.NotEmpty(t, gaps[0].Kept)
	assert.Equal(t, m.store.salvaged(), m.store.kept, "what was there before counts")
	m.leave()
}
