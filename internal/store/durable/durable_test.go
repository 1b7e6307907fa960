package durable

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// traced is the real disk. It notes its steps, and stops at the one named.
func traced(steps *[]string, stop string) disk {
	real := osDisk()
	step := func(name string, do func() error) error {
		*steps = append(*steps, name)
		if name == stop {
			return errors.New("no " + name)
		}
		return do()
	}
	return disk{
		sync:    func(f *os.File) error { return step("sync", func() error { return real.sync(f) }) },
		rename:  func(from, to string) error { return step("rename", func() error { return real.rename(from, to) }) },
		syncDir: func(dir string) error { return step("sync folder", func() error { return real.syncDir(dir) }) },
	}
}

func TestReplaceIsSyncedBeforeAndAfterTheRename(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "1.blk")
	require.NoError(t, os.WriteFile(path, []byte("old"), 0o600))
	var steps []string
	require.NoError(t, traced(&steps, "").replace(path, func(w io.Writer) error {
		beside, err := filepath.Glob(filepath.Join(filepath.Dir(path), "*.blk"))
		require.NoError(t, err)
		assert.Equal(t, []string{path}, beside, "what a kill leaves here is no block")
		steps = append(steps, "write")
		_, err = io.WriteString(w, "new")
		return err
	}))
	assert.Equal(t, []string{"write", "sync", "rename", "sync folder"}, steps)
	assert.Equal(t, "new", content(t, path))
	info, err := os.Stat(path)
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o600), info.Mode())
}

func TestReplaceThatFailsLeavesAWholeFile(t *testing.T) {
	t.Parallel()
	for stop, left := range map[string]string{"write": "old", "sync": "old", "rename": "old", "sync folder": "new"} {
		t.Run(stop, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "file")
			require.NoError(t, os.WriteFile(path, []byte("old"), 0o600))
			err := traced(new([]string), stop).replace(path, func(w io.Writer) error {
				_, err := io.WriteString(w, "new")
				if stop == "write" {
					err = errors.New("no write")
				}
				return err
			})
			require.ErrorContains(t, err, "no "+stop)
			assert.Equal(t, left, content(t, path))
			entries, err := os.ReadDir(filepath.Dir(path))
			require.NoError(t, err)
			assert.Len(t, entries, 1, "nothing is left beside it")
		})
	}
}

func TestWriteFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "file")
	require.NoError(t, WriteFile(path, []byte("first")))
	require.NoError(t, WriteFile(path, []byte("second")))
	assert.Equal(t, "second", content(t, path))
	require.ErrorIs(t, WriteFile(filepath.Join(path+"2", "file"), nil), os.ErrNotExist)
}

func TestMakeDirSyncsEachNewName(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var steps []string
	require.NoError(t, traced(&steps, "").makeDir(filepath.Join(dir, "a", "b", "c")))
	assert.Equal(t, strings.Split(strings.Repeat(",sync folder", 3), ",")[1:], steps)
	steps = nil
	require.NoError(t, traced(&steps, "").makeDir(filepath.Join(dir, "a", "b")))
	assert.Empty(t, steps)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "file"), nil, 0o600))
	require.ErrorContains(t, MakeDir(filepath.Join(dir, "file")), "file exists")
	require.ErrorContains(t, MakeDir(filepath.Join(dir, "file", "below")), "file exists")
}

func content(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	return string(data)
}

func TestManyFilesAreSyncedAndEachFolderOnce(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var files []File
	for i := range 100 {
		files = append(files, File{filepath.Join(dir, "a", string(rune('a'+i%2)), strconv.Itoa(i)), []byte(strconv.Itoa(i))})
	}
	var mu sync.Mutex
	count := map[string]int{}
	d := osDisk()
	d.sync = func(f *os.File) error { mu.Lock(); defer mu.Unlock(); count["file"]++; return f.Sync() }
	d.syncDir = func(dir string) error { mu.Lock(); defer mu.Unlock(); count["folder"]++; return SyncDir(dir) }
	require.NoError(t, d.replaceAll(files))
	assert.Equal(t, map[string]int{"file": 100, "folder": 3 + 2}, count, "three folders are made in their parents, two have files")
	for i, f := range files {
		require.Equal(t, strconv.Itoa(i), content(t, f.Path))
	}
	d.rename = func(string, string) error { return errors.New("no rename") }
	require.ErrorContains(t, d.replaceAll(files[:3]), "no rename")
	require.NoError(t, d.replaceAll(nil))
}

func TestAFileIsCreatedOnce(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "key")
	require.NoError(t, CreateFile(path, []byte("one")))
	require.ErrorContains(t, CreateFile(path, []byte("two")), "key exists")
	kept, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, "one", string(kept))
	require.Error(t, CreateFile(filepath.Join(path, "below"), nil))
}

func TestOnlyFilesAreRead(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	require.NoError(t, os.WriteFile(at("file"), []byte("text"), 0o600))
	require.NoError(t, syscall.Mkfifo(at("pipe"), 0o600))
	require.NoError(t, os.Symlink("file", at("link")))
	for _, name := range []string{"file", "link"} {
		text, err := ReadFile(at(name))
		require.NoError(t, err)
		assert.Equal(t, "text", string(text))
	}
	for _, path := range []string{dir, at("pipe")} {
		_, err := ReadFile(path)
		require.ErrorIs(t, err, ErrNoFile)
	}
	_, err := ReadFile(at("nothing"))
	require.ErrorIs(t, err, os.ErrNotExist)
}
