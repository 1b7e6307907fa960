package disk

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/internal/store"
)

func copyFile(t testing.TB, from, to string) {
	b, err := os.ReadFile(from)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(to, b, 0o600))
}

// A file of one log that was copied over one of another log is nothing there: a mark is
// missing, and a segment's records are lost and not those of the other log.
func TestAFileOfAnotherLogIsNone(t *testing.T) {
	t.Parallel()
	for _, file := range []string{endSuffix, "/" + segmentName(1)} {
		f := openFolder(t).(*folder)
		for _, name := range []string{"one", "two"} {
			for range 5 {
				_, err := f.Log(t, name).Append(t.Context(), store.Draft{Data: []byte("of the log " + name)})
				require.NoError(t, err)
			}
		}
		before, err := f.Log(t, "two").State(t.Context())
		require.NoError(t, err)
		require.NoError(t, f.store.Close())
		copyFile(t, f.at("one"+file), f.at("two"+file))
		f.open(t)
		l := f.Log(t, "two")
		after, err := l.State(t.Context())
		require.NoError(t, err)
		assert.Equal(t, before.ID, after.ID, file)
		records, gaps := read(t, l)
		if file != endSuffix {
			assert.Empty(t, records)
			require.Len(t, gaps, 1)
			assert.Equal(t, store.Gap{From: 1, To: 5, Why: store.Damaged, Kept: gaps[0].Kept}, gaps[0])
		} else {
			assert.Len(t, records, 5, file)
			assert.Empty(t, gaps, file)
		}
		assert.Equal(t, store.Pos(6), appendTo(t, l, 10))
	}
}

// Bytes in a body that look like a record are none, even if whoever sent them knows the place
// where they come to stand and everything about the log except its secret.
func TestABodyCannotForgeARecord(t *testing.T) {
	t.Parallel()
	m := newModel(t, 1)
	l := m.log.(*Log)
	forged := appendFrame(nil, store.Draft{Data: []byte("forged")}, 0)
	finish(forged, seedOf([16]byte{}, l.id, 1), dataStart+headSize, 2, 1, l.newest)
	require.Equal(t, store.Pos(1), func() store.Pos {
		pos, err := l.Append(context.Background(), store.Draft{Data: forged}, store.Draft{Data: []byte("real")})
		require.NoError(t, err)
		return pos
	}())
	m.leave()
	m.fs.names[l.path(1)].cache[dataStart+10] ^= 1 // the header around it
	m.open()
	for item, err := range m.log.Read(t.Context(), 1, false) {
		require.NoError(t, err)
		if item.Record != nil {
			assert.Equal(t, "real", string(item.Record.Data))
		} else {
			assert.Equal(t, store.Pos(1), item.Gap.To)
		}
	}
	m.leave()
}

// A record at another place of its segment, or of another one, is none.
func TestARecordAtAnotherPlaceIsNone(t *testing.T) {
	t.Parallel()
	m := newModel(t, 1)
	for range 3 {
		_, err := m.log.Append(context.Background(), store.Draft{Data: bytes.Repeat([]byte{1}, 100)})
		require.NoError(t, err)
	}
	l := m.log.(*Log)
	m.leave()
	n := m.fs.names[l.path(1)]
	size := frameSize(0, 100)
	second := n.cache[dataStart+size : dataStart+2*size]
	copy(n.cache[dataStart:], second) // a misdirected write
	m.open()
	records, gaps := read(t, m.log)
	assert.Equal(t, []store.Pos{2, 3}, records)
	require.Len(t, gaps, 1)
	assert.Equal(t, store.Pos(1), gaps[0].To)
	m.leave()
}

// What was trimmed is called so although one of the two places that say it is gone, or is an
// earlier copy of itself.
func TestTrimmedStaysTrimmed(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		file    string
		putBack bool
	}{{"events" + endSuffix, true}, {"events" + endSuffix, false}, {lazyFile, true}, {lazyFile, false}} {
		f := openFolder(t).(*folder)
		opts := store.Options{MaxBytes: 2 << 20}
		l, err := f.store.Log(t.Context(), "events", opts)
		require.NoError(t, err)
		for range 9 {
			appendTo(t, l, 60<<10)
		}
		require.NoError(t, l.Trim(t.Context(), 3))
		path, kept := filepath.Join(f.cfg.Dir, test.file), filepath.Join(t.TempDir(), "kept")
		copyFile(t, path, kept)
		require.NoError(t, l.Trim(t.Context(), 7))
		want, wantGaps := read(t, l)
		require.Len(t, wantGaps, 1)
		require.NoError(t, f.store.Close())
		require.NoError(t, os.Remove(path))
		if test.putBack {
			copyFile(t, kept, path)
		}
		f.open(t)
		l, err = f.store.Log(t.Context(), "events", opts)
		require.NoError(t, err)
		records, gaps := read(t, l)
		assert.Equal(t, want, records, test)
		assert.Equal(t, wantGaps, gaps, test)
	}
}

// A segment without a readable header gives its records all the same, and a file that is
// only named like a segment is put into the salvage folder.
func TestASegmentIsKnownByItsRecords(t *testing.T) {
	t.Parallel()
	f := openFolder(t).(*folder)
	opts := store.Options{MaxBytes: 2 << 20}
	l, err := f.store.Log(t.Context(), "events", opts)
	require.NoError(t, err)
	for range 9 {
		appendTo(t, l, 60<<10)
	}
	want, _ := read(t, l)
	segments := l.(*Log).segments
	require.Greater(t, len(segments), 3)
	require.NoError(t, f.store.Close())
	for _, i := range []int{1, len(segments) - 1} {
		file, err := os.OpenFile(l.(*Log).path(segments[i].base), os.O_RDWR, 0)
		require.NoError(t, err)
		_, err = file.WriteAt(make([]byte, dataStart), 0)
		require.NoError(t, err)
		require.NoError(t, file.Close())
	}
	require.NoError(t, os.WriteFile(l.(*Log).path(500), bytes.Repeat([]byte("junk"), 5000), 0o600))
	f.open(t)
	l, err = f.store.Log(t.Context(), "events", opts)
	require.NoError(t, err)
	records, gaps := read(t, l)
	assert.Equal(t, want, records)
	assert.Empty(t, gaps)
	assert.Equal(t, store.Pos(10), appendTo(t, l, 10))
	require.NoError(t, f.store.Close())

	// Another one of the same name does not cost the first.
	require.NoError(t, os.WriteFile(l.(*Log).path(500), []byte("more junk"), 0o600))
	f.open(t)
	f.Log(t, "events")
	for name, want := range map[string]string{"": "junk", ".1": "more"} {
		b, err := os.ReadFile(filepath.Join(f.cfg.Salvage, "events-"+segmentName(500)+name))
		require.NoError(t, err)
		assert.Equal(t, want, string(b[:4]))
	}
}

// A record at another place of its segment does not mislead the search for a position in the
// middle of it.
func TestARecordAtAnotherPlaceMisleadsNoSearch(t *testing.T) {
	t.Parallel()
	f := openFolder(t).(*folder)
	l, err := f.store.Log(t.Context(), "events", store.Options{})
	require.NoError(t, err)
	const records, size = 400, headSize + 1000 + sumSize
	for range records {
		appendTo(t, l, 1000)
	}
	require.NoError(t, f.store.Close())
	file, err := os.OpenFile(l.(*Log).path(1), os.O_RDWR, 0)
	require.NoError(t, err)
	second := make([]byte, size)
	_, err = file.ReadAt(second, dataStart+size)
	require.NoError(t, err)
	_, err = file.WriteAt(second, dataStart+records/2*size) // where the search begins
	require.NoError(t, err)
	require.NoError(t, file.Close())
	f.open(t)
	l, err = f.store.Log(t.Context(), "events", store.Options{})
	require.NoError(t, err)
	for item, err := range l.Read(t.Context(), 150, false) {
		require.NoError(t, err)
		require.NotNil(t, item.Record, "%+v", item.Gap)
		if item.Record.Pos == records/2 {
			break // the next one was overwritten
		}
	}
}

// What stands in a segment after its end was refused. It does not come back in the name of an
// acknowledged record when the segment's file is copied over the next one.
func TestARefusedRecordDoesNotComeBack(t *testing.T) {
	t.Parallel()
	m := newModel(t, 1)
	m.append()
	undo := m.failAt("sync", segmentSuffix)
	_, err := m.log.Append(context.Background(), store.Draft{Data: []byte("refused")})
	require.ErrorIs(t, err, store.ErrUnknown)
	undo()
	m.append()
	m.leave()
	segments := m.log.(*Log).segments
	require.Len(t, segments, 2)
	first, second := m.log.(*Log).path(segments[0].base), m.log.(*Log).path(segments[1].base)
	m.fs.set(second, m.fs.snapshot()[first])
	m.damaged = true
	m.open()
	m.check()
	require.Equal(t, store.Damaged, m.gaps[segments[1].base])
	m.leave()
}

// The end mark is lost, and a segment of another store's log of the same name stands among those of this
// one, as the newest. The table knows whose it is not.
func TestASegmentOfAnotherStoreIsNoneWithoutAMark(t *testing.T) {
	t.Parallel()
	other, m := newModel(t, 1), newModel(t, 2)
	for range 120 {
		m.append()
		other.append()
	}
	other.leave()
	before, err := m.log.State(t.Context())
	require.NoError(t, err)
	m.leave()
	foreign := other.log.(*Log)
	foreignBase := foreign.segments[len(foreign.segments)-1].base
	h := m.store.newHeader("events")
	h.Log, h.Secret, h.Base, h.Before = foreign.id, foreign.secret, before.End+100, foreignBase
	m.fs.set(m.log.(*Log).path(h.Base), h.encode())
	require.NoError(t, m.fs.Remove("/s/events"+endSuffix))
	m.open()
	after, err := m.log.State(t.Context())
	require.NoError(t, err)
	assert.Equal(t, before, after)
	m.check()
	_, gaps := read(t, m.log)
	assert.Empty(t, gaps)
	goesOn(m, "a segment of another store")
}
