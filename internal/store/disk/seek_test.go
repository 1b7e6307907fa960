package disk

import (
	"context"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/internal/store"
	"github.com/auditrelay/auditrelay/internal/testbed/places"
)

// countFS counts what is read, and the segments that are opened.
type countFS struct {
	osFS
	bytes, opened *atomic.Int64
}

type countFile struct {
	osFile
	bytes *atomic.Int64
}

func newCountFS() countFS { return countFS{bytes: &atomic.Int64{}, opened: &atomic.Int64{}} }

func (c countFS) Open(path string, flags int) (file, error) {
	f, err := c.osFS.Open(path, flags)
	if err != nil {
		return nil, err
	}
	if filepath.Ext(path) == ".seg" {
		c.opened.Add(1)
	}
	return countFile{f.(osFile), c.bytes}, nil
}

func (c countFS) Same(f file, path string) bool { return c.osFS.Same(f.(countFile).osFile, path) }

func (f countFile) ReadAt(b []byte, at int64) (int, error) {
	n, err := f.osFile.ReadAt(b, at)
	f.bytes.Add(int64(n))
	return n, err
}

// openCounting opens the store of a folder again, with a filesystem that counts.
func openCounting(t testing.TB, f *folder) (countFS, *Log) {
	require.NoError(t, f.store.Close())
	c := newCountFS()
	var err error
	f.store, err = open(f.cfg, c, bootID())
	require.NoError(t, err)
	l, err := f.store.Log(t.Context(), "events", store.Options{})
	require.NoError(t, err)
	return c, l.(*Log)
}

// fillSegment appends nearly a segment of records of about 4 KiB, in a few calls.
func fillSegment(t testing.TB, l store.Log) (last store.Pos) {
	for range 15 {
		drafts := make([]store.Draft, 1000)
		for i := range drafts {
			drafts[i].Data = make([]byte, 4000+i%100)
		}
		first, err := l.Append(t.Context(), drafts...)
		require.NoError(t, err)
		last = first + 999
	}
	return last
}

func readOne(t testing.TB, l store.Log, pos store.Pos) {
	for item, err := range l.Read(t.Context(), pos, false) {
		require.NoError(t, err)
		require.Equal(t, pos, item.Record.Pos)
		return
	}
	require.Fail(t, "nothing was read", "position %d", pos)
}

// A reader that begins in the middle of a large segment does not read it from its start.
func TestAReaderInTheMiddleReadsLittle(t *testing.T) {
	t.Parallel()
	f := openFolder(t).(*folder)
	l, err := f.store.Log(t.Context(), "events", store.Options{})
	require.NoError(t, err)
	last := fillSegment(t, l)
	c, cold := openCounting(t, f)
	random := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		pos := 1 + store.Pos(random.IntN(int(last)))
		c.bytes.Store(0)
		readOne(t, cold, pos)
		require.Less(t, c.bytes.Load(), int64(400<<10), "position %d", pos)
	}
}

// Damage in the middle of a segment costs a reader that begins there no other record than
// one that comes from the start.
func TestASearchPassesOverDamage(t *testing.T) {
	t.Parallel()
	f := openFolder(t).(*folder)
	l, err := f.store.Log(t.Context(), "events", store.Options{})
	require.NoError(t, err)
	last := fillSegment(t, l)
	require.NoError(t, f.store.Close())
	located, err := places.In(f.cfg.Dir, "events")
	require.NoError(t, err)
	random := rand.New(rand.NewPCG(3, 4))
	harmed := map[store.Pos]bool{}
	file, err := os.OpenFile(located[0].File, os.O_RDWR, 0)
	require.NoError(t, err)
	for range 40 {
		from := int64(dataStart + random.IntN(60<<20))
		size := int64(1 + random.IntN(300<<10))
		_, err := file.WriteAt(make([]byte, size), from)
		require.NoError(t, err)
		for _, p := range located {
			if p.Kind == places.Record && p.Offset < from+size && from < p.Offset+p.Size {
				harmed[p.Pos] = true // unless it hit zeros only
			}
		}
	}
	require.NoError(t, file.Close())
	f.open(t)
	l, err = f.store.Log(t.Context(), "events", store.Options{})
	require.NoError(t, err)
	for pos := store.Pos(1); pos <= last; pos += store.Pos(1 + random.IntN(60)) {
		for item, err := range l.Read(t.Context(), pos, false) {
			require.NoError(t, err)
			if item.Gap == nil {
				require.Equal(t, pos, item.Record.Pos)
				break
			}
			require.Equal(t, pos, item.Gap.From)
			require.True(t, harmed[pos], "position %d was not harmed", pos)
			break
		}
	}
}

// A start reads headers and marks, and of the newest segment what follows the end mark.
func TestAStartReadsLittle(t *testing.T) {
	t.Parallel()
	f := openFolder(t).(*folder)
	opened, err := f.store.Log(t.Context(), "events", store.Options{})
	require.NoError(t, err)
	l := opened.(*Log)
	for range 160 {
		appendTo(t, l, 1000)
		require.NoError(t, l.turn.lock(t.Context()))
		require.NoError(t, l.roll(l.end+1, maxSegment))
		l.turn.unlock()
	}
	fillSegment(t, l)
	for _, s := range l.segments[:160] {
		require.NoError(t, os.Truncate(l.path(s.base), maxSegment)) // 10 GB, most of it a hole
	}
	c, again := openCounting(t, f)
	assert.Less(t, c.bytes.Load(), int64(300<<10))
	state, err := again.State(t.Context())
	require.NoError(t, err)
	assert.Equal(t, store.Pos(160+15000), state.End)
	assert.Greater(t, state.Bytes, int64(10<<30))
	for _, s := range again.segments[:160] {
		require.Equal(t, dataStart+frameSize(0, 1000), s.end, "the next header says where it ends")
	}
}

// A follower at the end opens no segment and reads each byte once.
func TestAFollowerReadsEachByteOnce(t *testing.T) {
	t.Parallel()
	f := openFolder(t).(*folder)
	c, l := openCounting(t, f)
	next := follow(t, l)
	appendTo(t, l, 1000)
	next()
	c.bytes.Store(0)
	c.opened.Store(0)
	for range 100 {
		appendTo(t, l, 1000)
		next()
	}
	assert.Equal(t, 100*frameSize(0, 1000), c.bytes.Load())
	assert.Zero(t, c.opened.Load())
}

// follow reads a log from its end, one record at each call.
func follow(t testing.TB, l store.Log) (next func()) {
	state, err := l.State(t.Context())
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	seen, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for _, err := range l.Read(ctx, state.End+1, true) {
			if err != nil {
				return
			}
			seen <- struct{}{}
		}
	}()
	t.Cleanup(func() { cancel(); <-ended })
	return func() { <-seen }
}

func BenchmarkFollow(b *testing.B) {
	f := openFolder(b).(*folder)
	l, err := f.store.Log(b.Context(), "events", store.Options{})
	require.NoError(b, err)
	drafts := make([]store.Draft, 64)
	for i := range drafts {
		drafts[i] = store.Draft{Key: "key", Data: make([]byte, 1000)}
	}
	next := follow(b, l)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := l.Append(b.Context(), drafts...); err != nil {
			b.Fatal(err)
		}
		for range drafts {
			next()
		}
	}
}

func BenchmarkReadInTheMiddle(b *testing.B) {
	f := openFolder(b).(*folder)
	l, err := f.store.Log(b.Context(), "events", store.Options{})
	require.NoError(b, err)
	last := fillSegment(b, l)
	_, cold := openCounting(b, f)
	random := rand.New(rand.NewPCG(1, 2))
	b.ReportAllocs()
	for b.Loop() {
		readOne(b, cold, 1+store.Pos(random.IntN(int(last))))
	}
}

func BenchmarkReadAll(b *testing.B) {
	f := openFolder(b).(*folder)
	l, err := f.store.Log(b.Context(), "events", store.Options{})
	require.NoError(b, err)
	last := fillSegment(b, l)
	b.SetBytes(int64(last) * 4050)
	b.ReportAllocs()
	for b.Loop() {
		for _, err := range l.Read(b.Context(), 1, false) {
			require.NoError(b, err)
		}
	}
}
