package disk

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/auditrelay/auditrelay/internal/store"
)

// steps are what a process does to its files. Each is killed after every one of its changes.
var steps = map[string]func(m *model){
	"an append":       (*model).append,
	"a trim":          func(m *model) { m.trim() },
	"a put":           (*model).put,
	"a lazy put":      func(m *model) { m.putLazy(); _ = m.store.table.Sync(context.Background()) },
	"a new segment":   func(m *model) { _ = m.log.(*Log).Room(context.Background(), 240<<10) },
	"a sync of marks": func(m *model) { _ = m.log.(*Log).mark.sync() },
	"a failed sync, and two appends": func(m *model) {
		undo := m.failAt("sync", segmentSuffix)
		m.append()
		undo()
		m.append()
		m.append()
	},
}

// TestAKillAfterEachChange kills the process after every single change that an operation makes to
// its files, and after each kill there may be a power cut.
func TestAKillAfterEachChange(t *testing.T) {
	t.Parallel()
	for about, step := range steps {
		t.Run(about, func(t *testing.T) {
			t.Parallel()
			lives := uint64(12)
			if testing.Short() {
				lives = 4
			}
			for seed := range lives {
				for changes, done := 0, false; !done; changes++ {
					m := newModel(t, seed)
					for range 15 {
						m.append()
						m.putLazy()
					}
					m.leave() // nothing else changes the files
					m.fs.left = changes
					step(m)
					done = m.fs.left > 0
					m.fs.left = -1
					if m.rng.IntN(2) == 0 {
						m.cutPower()
					} else {
						m.kill()
					}
					m.check()
					goesOn(m, fmt.Sprintf("%s that was killed after %d changes", about, changes))
				}
			}
		})
	}
}

// A segment could not be made, since its name could not be synced, and was removed again. The
// segment before takes what still fits into it. A power cut that brings the removed file back costs
// none of that.
func TestASegmentThatWasNotMadeHidesNothing(t *testing.T) {
	t.Parallel()
	for seed := range uint64(20) {
		m := newModel(t, seed)
		m.append()
		l := m.log.(*Log)
		undo := m.failAt("syncdir", "/s/events")
		require.ErrorIs(t, l.Room(t.Context(), l.size-l.offset+1), unix.EIO)
		undo()
		m.append()
		m.leave()
		m.cutPower()
		m.check()
		goesOn(m, "a segment that was not made")
	}
}

// Both the end mark and a segment are lost, as if the two files had been exchanged. The table knows
// that there was such a segment, so that its records are not called trimmed, and no position is given
// out again.
func TestALostMarkDoesNotHideALostSegment(t *testing.T) {
	t.Parallel()
	for i := range 8 {
		which, rebooted := i%4, i > 3
		m := newModel(t, 2)
		for n := 0; n < 120 && (which < 3 || n < 5); n++ {
			m.append()
		}
		l := m.log.(*Log)
		require.Equal(t, which == 3, len(l.segments) == 1)
		m.leave()
		require.NoError(t, m.fs.Remove("/s/events.end"))
		require.NoError(t, m.fs.Remove(l.path(l.segments[which%3*(len(l.segments)-1)/2].base)))
		if rebooted {
			m.boot[0]++
		}
		m.damaged = true
		m.open()
		m.check()
		goesOn(m, "two losses")
	}
}

// An end mark of an earlier log of the same name was put back. The newest segment and the table agree
// that it is foreign.
func TestAnEndMarkOfAnEarlierLogIsNone(t *testing.T) {
	t.Parallel()
	earlier := newModel(t, 1)
	earlier.append()
	earlier.leave()
	m := newModel(t, 2)
	for range 120 {
		m.append()
	}
	before, err := m.log.State(t.Context())
	require.NoError(t, err)
	m.leave()
	m.fs.set("/s/events.end", earlier.fs.snapshot()["/s/events.end"])
	m.open()
	after, err := m.log.State(t.Context())
	require.NoError(t, err)
	assert.Equal(t, before.ID, after.ID)
	m.check()
	_, gaps := read(t, m.log)
	assert.Empty(t, gaps)
	goesOn(m, "a mark of an earlier log")
}

// A file whose inode is rotten cannot even be opened. It is as good as missing, and no reason to
// refuse a start.
func TestAFileThatCannotBeOpenedForItsOwnFaultIsAsGoodAsMissing(t *testing.T) {
	t.Parallel()
	for _, file := range []string{"events.end", "events/" + segmentName(1), lazyFile, "values.a", "values.b"} {
		for _, cause := range []error{unix.EIO, unix.EUCLEAN, unix.EBADMSG} {
			m := newModel(t, 2)
			for range 120 {
				m.append()
				m.put()
				m.putLazy()
			}
			m.leave()
			m.fs.failWith(func(op, path string) error {
				if strings.HasPrefix(op, "open") && path == "/s/"+file {
					return cause
				}
				return nil
			})
			s, err := open(Config{Dir: "/s", Salvage: "/salvage", Writer: "test", Logger: discard}, m.fs, m.boot)
			require.NoError(t, err, file)
			m.store = s
			m.log, err = s.Log(t.Context(), "events", m.opts)
			require.NoError(t, err, file)
			m.damaged = true
			m.check()
			m.leave()
		}
	}
}

// A disk that cannot read costs what it cannot read, and nothing else.
func TestASectorThatCannotBeRead(t *testing.T) {
	t.Parallel()
	for _, file := range []string{"events.end", "events/" + segmentName(1), lazyFile, "values.a", "values.b"} {
		m := newModel(t, 2)
		for range 120 {
			m.append()
			m.put()
			m.putLazy()
		}
		m.leave()
		m.fs.failWith(func(op, path string) error {
			if op == "read" && path == "/s/"+file {
				return unix.EIO
			}
			return nil
		})
		s, err := open(Config{Dir: "/s", Salvage: "/salvage", Writer: "test", Logger: discard}, m.fs, m.boot)
		require.NoError(t, err, file)
		m.store = s
		m.log, err = s.Log(t.Context(), "events", m.opts)
		require.NoError(t, err, file)
		_, gaps := read(t, m.log)
		if strings.HasSuffix(file, segmentSuffix) {
			assert.NotEmpty(t, gaps)
		} else {
			assert.Empty(t, gaps)
		}
		m.damaged = true
		m.check()
		m.leave()
	}
}

// The end mark could not be written, so that durable records were refused. None of them stands after
// the next ones, where a search could find it.
func TestNothingFollowsRecordsThatTheMarkDoesNotKnow(t *testing.T) {
	t.Parallel()
	m := newModel(t, 1)
	m.append()
	m.fs.failWith(func(op, path string) error {
		if op == "write" && strings.Contains(path, endSuffix) {
			return unix.EIO
		}
		return nil
	})
	var refused []store.Draft
	for _, size := range []int{3000, 10, 10, 10} {
		refused = append(refused, store.Draft{Data: make([]byte, size)})
	}
	_, err := m.log.Append(t.Context(), refused...)
	require.ErrorIs(t, err, store.ErrUnknown)
	m.fs.failWith(nil)
	l := m.log.(*Log)
	offset := l.offset
	first, err := m.log.Append(t.Context(), store.Draft{Data: []byte("a")}, store.Draft{Data: []byte("b")})
	require.NoError(t, err)
	f, err := m.fs.Open(l.path(l.segments[len(l.segments)-1].base), toWrite)
	require.NoError(t, err)
	w := &window{f: f}
	_, h, found := w.find(offset, int64(len(f.(*memFile).cache)), l.segments[len(l.segments)-1].seed, first+2, ^store.Pos(0))
	assert.False(t, found, "%+v", h)
	m.leave()
}

// Times never decrease where the clock was set back, and a kill does not change that.
func TestAClockThatIsSetBack(t *testing.T) {
	t.Parallel()
	m := newModel(t, 1)
	m.append()
	l := m.log.(*Log)
	l.newest = l.newest.Add(time.Hour) // as if the clock had been an hour ahead
	for range 3 {
		m.append()
		m.kill()
	}
	var last time.Time
	for item, err := range m.log.Read(t.Context(), 1, false) {
		require.NoError(t, err)
		require.False(t, item.Record.Time.Before(last))
		last = item.Record.Time
	}
	require.True(t, last.After(time.Now().Add(time.Minute)))
	pos, err := m.log.Seek(t.Context(), last)
	require.NoError(t, err)
	state, err := m.log.State(t.Context())
	require.NoError(t, err)
	require.LessOrEqual(t, pos, state.End)
	m.leave()
}
