package disk

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/auditrelay/auditrelay/internal/store"
)

// appendTo appends a record of so many bytes.
func appendTo(t testing.TB, l store.Log, size int) store.Pos {
	pos, err := l.Append(t.Context(), store.Draft{Data: make([]byte, size)})
	require.NoError(t, err)
	return pos
}

// A file of a later version refuses the start, and names what wrote it. A version that rot
// has changed is rot, and refuses nothing.
func TestALaterVersionIsRefused(t *testing.T) {
	t.Parallel()
	f := openFolder(t).(*folder)
	appendTo(t, f.Log(t, "events"), 100)
	path := filepath.Join(f.cfg.Dir, "events", segmentName(1))
	header, err := os.ReadFile(path)
	require.NoError(t, err)
	write := func(at int, b []byte) {
		file, err := os.OpenFile(path, os.O_WRONLY, 0)
		require.NoError(t, err)
		_, err = file.WriteAt(b, int64(at))
		require.NoError(t, err)
		require.NoError(t, file.Close())
	}

	rotten := append([]byte{}, header[:headerSize]...)
	binary.LittleEndian.PutUint32(rotten[8:], formatVersion+1)
	write(0, rotten)
	f.Kill(t)
	appendTo(t, f.Log(t, "events"), 100)

	later := append([]byte{}, rotten...)
	binary.LittleEndian.PutUint64(later[headerSize-8:], sum(0, later[:headerSize-8]))
	write(0, later)
	f.Kill(t)
	_, err = f.store.Log(t.Context(), "events", store.Options{})
	var refused *VersionError
	require.ErrorAs(t, err, &refused)
	assert.Equal(t, VersionError{File: path, Writer: "test", Version: formatVersion + 1}, *refused)
	assert.ErrorContains(t, err, "it was written by test; run that version")
}

// Whoever appends to a file that was removed or replaced is told so.
func TestARemovedFolderIsNoticed(t *testing.T) {
	t.Parallel()
	f := openFolder(t).(*folder)
	l := f.Log(t, "events")
	appendTo(t, l, 100)
	require.NoError(t, os.RemoveAll(filepath.Join(f.cfg.Dir, "events")))
	_, err := l.Append(t.Context(), store.Draft{Data: []byte("into an unlinked file")})
	require.ErrorIs(t, err, store.ErrGone)
	f.Kill(t)
	assert.Equal(t, store.Pos(2), appendTo(t, f.Log(t, "events"), 100), "after everything that was confirmed")
}

// At the budget nothing is stored, and after a trim there is room again.
func TestABudgetIsHeld(t *testing.T) {
	t.Parallel()
	for _, allocate := range []bool{false, true} {
		f := openFolder(t).(*folder)
		l, err := f.store.Log(t.Context(), "small", store.Options{MaxBytes: 1 << 20, Allocate: allocate})
		require.NoError(t, err)
		stored := store.Pos(0)
		for {
			pos, err := l.Append(t.Context(), store.Draft{Data: make([]byte, 10<<10)})
			if err != nil {
				require.ErrorIs(t, err, store.ErrFull)
				break
			}
			stored = pos
			require.Less(t, stored, store.Pos(110))
		}
		assert.Greater(t, stored, store.Pos(80))
		state, err := l.State(t.Context())
		require.NoError(t, err)
		assert.Equal(t, stored, state.End)
		assert.LessOrEqual(t, state.Bytes, int64(1<<20))
		require.NoError(t, l.Trim(t.Context(), stored/2))
		assert.Equal(t, stored+1, appendTo(t, l, 10<<10))
	}
}

func BenchmarkAppend(b *testing.B) {
	for _, size := range []int{1 << 10, 60 << 10} {
		b.Run(map[int]string{1 << 10: "1KiB", 60 << 10: "60KiB"}[size], func(b *testing.B) {
			f := openFolder(b).(*folder)
			l, err := f.store.Log(b.Context(), "events", store.Options{MaxBytes: 8 << 30, Allocate: true})
			require.NoError(b, err)
			d := store.Draft{Data: make([]byte, size)}
			b.SetBytes(int64(size))
			b.SetParallelism(32)
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					if _, err := l.Append(b.Context(), d); err != nil {
						b.Error(err)
						return
					}
				}
			})
		})
	}
}

// standIns make something at a path that is neither a file nor a folder, or not the right one.
var standIns = map[string]func(path string, wasFolder bool) error{
	"the other one": func(path string, wasFolder bool) error {
		if wasFolder {
			return os.WriteFile(path, []byte("x"), 0o600)
		}
		return os.MkdirAll(filepath.Join(path, "x"), 0o700)
	},
	"a pipe":          func(path string, _ bool) error { return unix.Mkfifo(path, 0o600) },
	"a loop":          func(path string, _ bool) error { return os.Symlink(filepath.Base(path), path) },
	"a dangling link": func(path string, _ bool) error { return os.Symlink("/nonexistent/folder/file", path) },
}

// What stands where the store has a file or a folder, and is none, costs no more than if nothing
// stood there.
func TestWhatIsNoFileIsMovedAside(t *testing.T) {
	t.Parallel()
	for about, put := range standIns {
		for _, name := range []string{"events", "events.end", "events/" + segmentName(1), "lazy", "values.a", "values.b"} {
			f := openFolder(t).(*folder)
			for range 3 {
				appendTo(t, f.Log(t, "events"), 100)
			}
			require.NoError(t, f.store.Close())
			info, err := os.Stat(f.at(name))
			require.NoError(t, err)
			require.NoError(t, os.RemoveAll(f.at(name)))
			require.NoError(t, put(f.at(name), info.IsDir()))
			f.open(t)
			assert.Greater(t, appendTo(t, f.Log(t, "events"), 100), store.Pos(3), "%s for %s", about, name)
			_, err = f.Table().Put(t.Context(), "key", []byte("value"), store.If{})
			require.NoError(t, err, "%s for %s", about, name)
			kept, err := os.ReadDir(f.cfg.Salvage)
			require.NoError(t, err)
			assert.NotEmpty(t, kept, "%s for %s", about, name)
		}
	}
}

// The salvage folder itself may be something else.
func TestThingsAreMovedAsideWithoutASalvageFolder(t *testing.T) {
	t.Parallel()
	for about, put := range standIns {
		f := openFolder(t).(*folder)
		appendTo(t, f.Log(t, "events"), 100)
		require.NoError(t, f.store.Close())
		require.NoError(t, os.RemoveAll(f.cfg.Salvage))
		require.NoError(t, put(f.cfg.Salvage, true))
		require.NoError(t, os.Remove(f.at("lazy")))
		require.NoError(t, unix.Mkfifo(f.at("lazy"), 0o600))
		f.open(t)
		assert.Equal(t, store.Pos(2), appendTo(t, f.Log(t, "events"), 100), about)
	}
}

// Nothing can be renamed from one filesystem into another.
func TestThingsAreMovedAsideWithASalvageFolderElsewhere(t *testing.T) {
	t.Parallel()
	const elsewhere = "/dev/shm"
	dir, err := os.MkdirTemp(elsewhere, "") //nolint:usetesting // it has to be on another filesystem
	if err != nil {
		t.Skip("there is no other filesystem: ", err)
	}
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	f := openFolder(t).(*folder)
	appendTo(t, f.Log(t, "events"), 100)
	require.NoError(t, f.store.Close())
	for _, name := range []string{"lazy", "events.end", "events/" + segmentName(1)} {
		require.NoError(t, os.Remove(f.at(name)))
		require.NoError(t, os.MkdirAll(f.at(name, "x"), 0o700))
	}
	f.cfg.Salvage = filepath.Join(dir, "salvage")
	f.open(t)
	assert.Greater(t, appendTo(t, f.Log(t, "events"), 100), store.Pos(0))
	logs, err := f.store.Logs(t.Context())
	require.NoError(t, err)
	assert.Equal(t, []string{"events"}, logs)
}

// readCounter counts the bytes that are read.
type readCounter struct {
	osFile
	read int
}

func (f *readCounter) ReadAt(b []byte, offset int64) (int, error) {
	n, err := f.osFile.ReadAt(b, offset)
	f.read += n
	return n, err
}

// A start need not read what was only reserved, even if the start before has read some of it.
func TestReservedIsNotRead(t *testing.T) {
	t.Parallel()
	opened, err := osFS{}.Open(filepath.Join(t.TempDir(), "f"), toMake)
	require.NoError(t, err)
	defer func() { require.NoError(t, opened.Close()) }()
	const reserved = 16 << 20
	require.NoError(t, opened.Allocate(reserved))
	const written = 3*pageSize + 100
	_, err = opened.WriteAt([]byte("x"), written-1)
	require.NoError(t, err)
	require.NoError(t, opened.Sync())
	if opened.Data(4*pageSize) != reserved {
		t.Skip("this filesystem does not tell what was only reserved")
	}
	for range 2 {
		f := &readCounter{osFile: opened.(osFile)}
		assert.EqualValues(t, written, (&window{f: f}).filled(written, reserved))
		assert.LessOrEqual(t, f.read, 2*windowSize)
		_, err = opened.ReadAt(make([]byte, reserved), 0)
		require.NoError(t, err)
	}
}

// What was only reserved need not be read, and what was written is not passed over.
func TestDataIsNeverPassedOver(t *testing.T) {
	t.Parallel()
	f, err := osFS{}.Open(filepath.Join(t.TempDir(), "f"), toMake)
	require.NoError(t, err)
	defer func() { require.NoError(t, f.Close()) }()
	const reserved, written = 4 << 20, 3<<20 + 5
	require.NoError(t, f.Allocate(reserved))
	for _, synced := range []bool{false, true} {
		_, err = f.WriteAt([]byte("x"), written)
		require.NoError(t, err)
		if synced {
			require.NoError(t, f.Sync())
		}
		for _, from := range []int64{0, pageSize + 1, written - 1, written} {
			assert.GreaterOrEqual(t, f.Data(from), from)
			assert.LessOrEqual(t, f.Data(from), max(from, written), "from %d, synced: %v", from, synced)
		}
		w := &window{f: f}
		assert.EqualValues(t, written+1, w.filled(0, reserved))
		assert.EqualValues(t, written+1, w.filled(written+1, reserved))
	}
	assert.LessOrEqual(t, f.Data(written+1), int64(reserved))
	assert.EqualValues(t, reserved+7, f.Data(reserved+7), "beyond the end")
}
