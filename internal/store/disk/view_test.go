package disk

import (
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/internal/store"
	"github.com/auditrelay/auditrelay/internal/testbed/places"
)

// read reads a log to its end, and checks that no position is left out.
func read(t testing.TB, l store.Log) (records []store.Pos, gaps []store.Gap) {
	next := store.Pos(1)
	for item, err := range l.Read(t.Context(), 1, false) {
		require.NoError(t, err)
		if g := item.Gap; g != nil {
			require.Equal(t, next, g.From)
			gaps, next = append(gaps, *g), g.To+1
			continue
		}
		require.Equal(t, next, item.Record.Pos)
		records, next = append(records, next), next+1
	}
	return records, gaps
}

// A view says nothing of what a running process has written and not confirmed, whether it is a
// whole record already or the half of one.
func TestAViewPassesOverWhatIsNotConfirmed(t *testing.T) {
	t.Parallel()
	for _, part := range []int{1, 2} {
		f := openFolder(t).(*folder)
		l := f.Log(t, "events").(*Log)
		appendTo(t, l, 100)
		b := appendFrame(nil, store.Draft{Data: make([]byte, 5000)}, 0)
		finish(b, l.segments[0].seed, l.offset, 2, 1, l.newest)
		_, err := l.f.WriteAt(b[:len(b)/part], l.offset)
		require.NoError(t, err)
		v, err := View(f.cfg)
		require.NoError(t, err)
		seen, err := v.Log(t.Context(), "events", store.Options{})
		require.NoError(t, err)
		records, gaps := read(t, seen)
		assert.Equal(t, []store.Pos{1}, records)
		assert.Empty(t, gaps)
		state, err := seen.State(t.Context())
		require.NoError(t, err)
		assert.Equal(t, store.Pos(1), state.End)
	}
}

// contents are the bytes of all files in a folder and below.
func contents(t testing.TB, dir string) map[string]string {
	all := map[string]string{}
	require.NoError(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := os.ReadFile(path)
		all[path] = string(b)
		return err
	}))
	return all
}

// A view of a store that is written and trimmed meanwhile shows what was acknowledged, and
// never takes anything for damage.
func TestAViewOfARunningStoreShowsNoDamage(t *testing.T) {
	t.Parallel()
	f := openFolder(t).(*folder)
	l, err := f.store.Log(t.Context(), "events", store.Options{MaxBytes: 4 << 20, Allocate: true})
	require.NoError(t, err)
	appendTo(t, l, 10)
	var acked atomic.Uint64
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			acked.Store(uint64(appendTo(t, l, 9000)))
			assert.NoError(t, l.Trim(t.Context(), store.Pos(max(acked.Load(), 100)-100)))
		}
	}()
	v, err := View(f.cfg)
	require.NoError(t, err)
	for acked.Load() < 1500 {
		before := acked.Load()
		seen, err := v.Log(t.Context(), "events", store.Options{})
		require.NoError(t, err)
		records, gaps := read(t, seen)
		last := store.Pos(0)
		for _, g := range gaps { // perhaps also of what was trimmed after the log was opened
			require.Equal(t, store.Trimmed, g.Why, "%+v", g)
			require.Less(t, uint64(g.To)+100, acked.Load())
			last = g.To
		}
		if n := len(records); n > 0 {
			last = max(last, records[n-1])
		}
		require.GreaterOrEqual(t, uint64(last), before)
	}
	stop()
	<-done
}

// A view needs no lock, finds what a store holds that nobody has open, and changes nothing.
func TestAViewChangesNothing(t *testing.T) {
	t.Parallel()
	f := openFolder(t).(*folder)
	for range 30 {
		appendTo(t, f.Log(t, "events"), 60<<10)
	}
	require.NoError(t, f.Log(t, "events").Trim(t.Context(), 20))
	_, err := f.Table().Put(t.Context(), "durable", []byte("1"), store.If{})
	require.NoError(t, err)
	require.NoError(t, f.Table().PutLazy(t.Context(), "lazy", []byte("2"), store.If{}))
	want, wantGaps := read(t, f.Log(t, "events"))
	require.NoError(t, f.store.Close())
	before := contents(t, filepath.Dir(f.cfg.Dir))

	v, err := View(f.cfg)
	require.NoError(t, err)
	l, err := v.Log(t.Context(), "events", store.Options{})
	require.NoError(t, err)
	records, gaps := read(t, l)
	assert.Equal(t, want, records)
	assert.Equal(t, wantGaps, gaps)
	for key, data := range map[string]string{"durable": "1", "lazy": "2"} {
		value, err := v.Table().Get(t.Context(), key)
		require.NoError(t, err)
		assert.Equal(t, data, string(value.Data))
		_, err = v.Table().Put(t.Context(), key, nil, store.If{})
		require.ErrorIs(t, err, ErrReadOnly)
		require.ErrorIs(t, v.Table().PutLazy(t.Context(), key, nil, store.If{}), ErrReadOnly)
	}
	_, err = l.Append(t.Context(), store.Draft{})
	require.ErrorIs(t, err, ErrReadOnly)
	require.ErrorIs(t, l.Trim(t.Context(), 25), ErrReadOnly)
	_, err = v.Log(t.Context(), "another", store.Options{})
	require.ErrorIs(t, err, fs.ErrNotExist)
	require.NoError(t, v.Close())
	assert.Equal(t, before, contents(t, filepath.Dir(f.cfg.Dir)))
	f.open(t)
}

// An older end mark that was put back hides nothing from a view, since a start finds what
// stands after it.
func TestAViewJudgesAnOlderEndMarkAsAStartDoes(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"events", "letters"} {
		for _, later := range []int{1, 2, 30} { // of 30, some stand in another segment
			f := openFolder(t).(*folder)
			appendTo(t, f.Log(t, name), 100)
			require.NoError(t, f.store.Close())
			mark := f.at(name + endSuffix)
			older, err := os.ReadFile(mark)
			require.NoError(t, err)
			f.open(t)
			for range later {
				appendTo(t, f.Log(t, name), 60<<10)
			}
			require.NoError(t, f.store.Close())
			require.NoError(t, os.WriteFile(mark, older, 0o600))
			v, err := View(f.cfg)
			require.NoError(t, err)
			viewed, err := v.Log(t.Context(), name, store.Options{})
			require.NoError(t, err)
			seen, gaps := read(t, viewed)
			f.open(t)
			found, foundGaps := read(t, f.Log(t, name))
			assert.Len(t, found, later+1, name)
			assert.Equal(t, found, seen, name)
			assert.Equal(t, foundGaps, gaps, name)
		}
	}
}

// What is found in the files is what costs exactly one record.
func TestWhatIsLocatedIsThere(t *testing.T) {
	t.Parallel()
	f := openFolder(t).(*folder)
	for range 40 {
		appendTo(t, f.Log(t, "events"), 60<<10)
	}
	_, err := f.Table().Put(t.Context(), "durable", []byte("1"), store.If{})
	require.NoError(t, err)
	require.NoError(t, f.Table().PutLazy(t.Context(), "lazy", []byte("2"), store.If{}))
	require.NoError(t, f.store.Close())
	located, err := places.In(f.cfg.Dir, "events")
	require.NoError(t, err)
	of := map[places.Kind][]places.Place{}
	for _, p := range located {
		of[p.Kind] = append(of[p.Kind], p)
	}
	require.Len(t, of[places.Record], 40)
	for _, i := range []int{0, 20, 39} {
		p := of[places.Record][i]
		require.Equal(t, store.Pos(i+1), p.Pos)
		flip(t, p.File, p.Offset+p.Size/2)
	}
	tables, err := places.In(f.cfg.Dir, "")
	require.NoError(t, err)
	var keys []string
	for _, p := range tables {
		if p.Kind == places.Durable || p.Kind == places.Lazy {
			keys = append(keys, p.Key)
		}
	}
	told := toldPrefix + "events"
	assert.Equal(t, []string{"durable", "durable", markKey, told, markKey, told, "lazy"}, keys)
	f.open(t)
	_, gaps := read(t, f.Log(t, "events"))
	require.Len(t, gaps, 3)
	for i, pos := range []store.Pos{1, 21, 40} {
		assert.Equal(t, pos, gaps[i].From)
		assert.Equal(t, pos, gaps[i].To)
		assert.Equal(t, store.Damaged, gaps[i].Why)
		assert.FileExists(t, gaps[i].Kept)
	}
	require.NoError(t, os.MkdirAll(f.at("stray", "folder"), 0o700))
	logs, err := f.store.Logs(t.Context())
	require.NoError(t, err)
	assert.Equal(t, []string{"events"}, logs)
}

// flip changes one bit of a file.
func flip(t testing.TB, path string, at int64) {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	require.NoError(t, err)
	b := make([]byte, 1)
	_, err = f.ReadAt(b, at)
	require.NoError(t, err)
	b[0] ^= 4
	_, err = f.WriteAt(b, at)
	require.NoError(t, err)
	require.NoError(t, f.Close())
}

// meanwhileFS calls do before the first listing of a log's folder.
type meanwhileFS struct {
	*memFS
	do func()
}

func (m *meanwhileFS) Names(dir string) ([]string, error) {
	if do := m.do; do != nil && dir == "/s/events" {
		m.do = nil
		do()
	}
	return m.memFS.Names(dir)
}

// A log that is made while a view looks for its files is shown without any gap.
func TestAViewOfALogThatIsMadeMeanwhile(t *testing.T) {
	t.Parallel()
	fs := &meanwhileFS{memFS: newMemFS(1)}
	v := &Store{fs: fs, view: true, cfg: Config{Dir: "/s"}, boot: [16]byte{1}, log: discard}
	var err error
	v.table, err = openTable(v)
	require.NoError(t, err)
	fs.do = func() {
		s, err := open(Config{Dir: "/s", Salvage: "/salvage", Logger: discard}, fs.memFS, v.boot)
		require.NoError(t, err)
		l, err := s.Log(t.Context(), "events", store.Options{})
		require.NoError(t, err)
		appendTo(t, l, 100)
		require.NoError(t, s.Close())
	}
	l, err := v.look("events")
	require.NoError(t, err)
	records, gaps := read(t, l)
	assert.Equal(t, []store.Pos{1}, records)
	assert.Empty(t, gaps)
}
