package disk

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/internal/store"
)

// twoLogs is a store with the logs events and letters.
func twoLogs(t *testing.T) *folder {
	f := openFolder(t).(*folder)
	for i, name := range []string{"events", "letters"} {
		for range 5 + 3*i {
			appendTo(t, f.Log(t, name), 100)
		}
	}
	return f
}

func (f *folder) at(names ...string) string {
	return filepath.Join(append([]string{f.cfg.Dir}, names...)...)
}

// putBack puts an earlier copy in the place of a file.
func (f *folder) putBack(earlier, name string) error {
	b, err := os.ReadFile(filepath.Join(earlier, name))
	return errors.Join(err, os.WriteFile(f.at(name), b, 0o600))
}

// ids are the ids of the logs.
func (f *folder) ids(t *testing.T) (ids [2]store.ID) {
	for i, name := range []string{"events", "letters"} {
		state, err := f.Log(t, name).State(t.Context())
		require.NoError(t, err)
		ids[i] = state.ID
	}
	return ids
}

// wentOn checks that a log lost everything up to a position, says so, and goes on.
func (f *folder) wentOn(t *testing.T, name string, end store.Pos) {
	t.Helper()
	want, next := []store.Gap{{From: 1, To: end, Why: store.Damaged}}, end+1
	v, err := View(f.cfg)
	require.NoError(t, err)
	names, err := v.Logs(t.Context())
	require.NoError(t, err)
	assert.Contains(t, names, name)
	viewed, err := v.Log(t.Context(), name, store.Options{})
	require.NoError(t, err)
	_, gaps := read(t, viewed)
	assert.Equal(t, want, gaps, "of a view before the start")
	l := f.Log(t, name)
	for range 2 {
		records, gaps := read(t, l)
		assert.Empty(t, records)
		assert.Equal(t, want, withoutKept(gaps))
		f.Kill(t)
		l = f.Log(t, name)
	}
	assert.Equal(t, next, appendTo(t, l, 100))
	f.Kill(t)
	records, gaps := read(t, f.Log(t, name))
	assert.Equal(t, []store.Pos{next}, records)
	assert.Equal(t, want, withoutKept(gaps))
}

// withoutKept leaves out where the bytes are kept that stood there, which may be another log's.
func withoutKept(gaps []store.Gap) []store.Gap {
	for i := range gaps {
		gaps[i].Kept = ""
	}
	return gaps
}

// The files of a log are lost, or those of another log stand in their place. Its positions
// are named as lost under the same id, and none of the other log's records is believed.
func TestALogOutlivesItsFolder(t *testing.T) {
	t.Parallel()
	for name, harm := range map[string]func(t *testing.T, f *folder){
		"the folder is lost": func(t *testing.T, f *folder) { require.NoError(t, os.RemoveAll(f.at("events"))) },
		"its files are lost": func(t *testing.T, f *folder) {
			require.NoError(t, os.RemoveAll(f.at("events")))
			require.NoError(t, os.Mkdir(f.at("events"), 0o700))
		},
		"the folders are exchanged": func(t *testing.T, f *folder) {
			require.NoError(t, os.Rename(f.at("events"), f.at("kept")))
			require.NoError(t, os.Rename(f.at("letters"), f.at("events")))
			require.NoError(t, os.Rename(f.at("kept"), f.at("letters")))
		},
		"another's folder": func(t *testing.T, f *folder) {
			require.NoError(t, os.RemoveAll(f.at("events")))
			require.NoError(t, os.CopyFS(f.at("events"), os.DirFS(f.at("letters"))))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := twoLogs(t)
			before := f.ids(t)
			require.NoError(t, f.store.Close())
			harm(t, f)
			f.open(t)
			f.wentOn(t, "events", 5)
			if name == "the folders are exchanged" {
				f.wentOn(t, "letters", 8)
				assert.FileExists(t, filepath.Join(f.cfg.Salvage, "letters-"+segmentName(1)))
			} else {
				records, gaps := read(t, f.Log(t, "letters"))
				assert.Len(t, records, 8)
				assert.Empty(t, gaps)
			}
			assert.Equal(t, before, f.ids(t))
		})
	}
}

// An earlier copy of a log's folder stands where another log's folder was.
func TestAnEarlierCopyOfAnotherLogIsNone(t *testing.T) {
	t.Parallel()
	f := twoLogs(t)
	before := f.ids(t)
	require.NoError(t, f.store.Close())
	earlier := filepath.Join(t.TempDir(), "earlier")
	require.NoError(t, os.CopyFS(earlier, os.DirFS(f.at("letters"))))
	f.open(t)
	appendTo(t, f.Log(t, "letters"), 100)
	require.NoError(t, f.store.Close())
	require.NoError(t, os.RemoveAll(f.at("events")))
	require.NoError(t, os.CopyFS(f.at("events"), os.DirFS(earlier)))
	f.open(t)
	f.wentOn(t, "events", 5)
	assert.Equal(t, before, f.ids(t))
}

// An earlier copy of a log's own folder gives no position out again.
func TestAnEarlierCopyOfAFolderNamesWhatItLacks(t *testing.T) {
	t.Parallel()
	f := twoLogs(t)
	before := f.ids(t)
	require.NoError(t, f.store.Close())
	earlier := filepath.Join(t.TempDir(), "earlier")
	require.NoError(t, os.CopyFS(earlier, os.DirFS(f.at("events"))))
	f.open(t)
	appendTo(t, f.Log(t, "events"), 100)
	appendTo(t, f.Log(t, "events"), 100)
	require.NoError(t, f.store.Close())
	require.NoError(t, os.RemoveAll(f.at("events")))
	require.NoError(t, os.CopyFS(f.at("events"), os.DirFS(earlier)))
	f.open(t)
	assert.Equal(t, store.Pos(8), appendTo(t, f.Log(t, "events"), 100))
	f.Kill(t)
	records, gaps := read(t, f.Log(t, "events"))
	assert.Equal(t, []store.Pos{1, 2, 3, 4, 5, 8}, records)
	assert.Equal(t, []store.Gap{{From: 6, To: 7, Why: store.Damaged}}, gaps)
	assert.Equal(t, before, f.ids(t))
}

// A log whose process was killed right after it was made, or after its last append, is known. After a
// power cut the mark may be an older one, so that nobody knows how many records there were.
func TestALogIsKnownFromTheStart(t *testing.T) {
	t.Parallel()
	for _, rebooted := range []bool{false, true} {
		for _, appended := range []int{0, 3} {
			f := openFolder(t).(*folder)
			f.Log(t, "events")
			for range appended {
				appendTo(t, f.Log(t, "events"), 100)
			}
			before := f.ids(t)
			f.store.stop()
			<-f.store.stopped
			require.NoError(t, f.store.guard.Close())
			require.NoError(t, os.RemoveAll(f.at("events")))
			boot := bootID()
			if rebooted {
				boot[0]++
			}
			var err error
			f.store, err = open(f.cfg, osFS{}, boot)
			require.NoError(t, err)
			next := store.Pos(appended) + 1
			if rebooted {
				next += lostMargin
			}
			assert.Equal(t, next, appendTo(t, f.Log(t, "events"), 100))
			assert.Equal(t, before[0], f.ids(t)[0])
		}
	}
}

// The newest segment is lost, and what would say so is an earlier copy or lost, too. What stands in the
// segments that are left shows that it is, so that nobody knows what came after them.
func TestEarlierCopiesSayNothingOfALostSegment(t *testing.T) {
	t.Parallel()
	for name, harm := range map[string]func(f *folder, earlier string) error{
		"no end mark, and an earlier table": func(f *folder, earlier string) error {
			return errors.Join(os.Remove(f.at("events.end")), f.putBack(earlier, "lazy"))
		},
		"an earlier end mark, and no table": func(f *folder, earlier string) error {
			return errors.Join(os.Remove(f.at("lazy")), f.putBack(earlier, "events.end"))
		},
		"an earlier end mark, and an earlier table": func(f *folder, earlier string) error {
			return errors.Join(f.putBack(earlier, "lazy"), f.putBack(earlier, "events.end"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := openFolder(t).(*folder)
			opts := store.Options{MaxBytes: 2 << 20}
			appended := func(n int) {
				l, err := f.store.Log(t.Context(), "events", opts)
				require.NoError(t, err)
				for range n {
					appendTo(t, l, 60<<10) // two in a segment
				}
				require.NoError(t, f.store.Close())
			}
			appended(3)
			earlier := t.TempDir()
			require.NoError(t, os.CopyFS(earlier, os.DirFS(f.cfg.Dir)))
			f.open(t)
			appended(4)
			require.NoError(t, os.Remove(f.at("events", segmentName(7))))
			require.NoError(t, harm(f, earlier))
			for range 2 {
				f.open(t)
				l, err := f.store.Log(t.Context(), "events", opts)
				require.NoError(t, err)
				records, gaps := read(t, l)
				assert.Equal(t, []store.Pos{1, 2, 3, 4, 5, 6}, records)
				assert.Equal(t, []store.Gap{{From: 7, To: 6 + maxSegment/(headSize+sumSize), Why: store.Doubtful}}, gaps)
				require.NoError(t, f.store.Close())
			}
			f.open(t)
		})
	}
}

// What was trimmed is not called lost, and a log that was lost with the whole store is new.
func TestALostFolderKeepsWhatWasTrimmed(t *testing.T) {
	t.Parallel()
	f := openFolder(t).(*folder)
	opts := store.Options{MaxBytes: 2 << 20}
	l, err := f.store.Log(t.Context(), "events", opts)
	require.NoError(t, err)
	for range 9 {
		appendTo(t, l, 60<<10)
	}
	require.NoError(t, l.Trim(t.Context(), 7))
	_, want := read(t, l)
	require.Len(t, want, 1)
	require.NoError(t, f.store.Close())
	require.NoError(t, os.RemoveAll(f.at("events")))
	f.open(t)
	l, err = f.store.Log(t.Context(), "events", opts)
	require.NoError(t, err)
	_, gaps := read(t, l)
	require.Len(t, gaps, 2)
	assert.Equal(t, want[0], gaps[0])
	assert.Equal(t, store.Gap{From: want[0].To + 1, To: 9, Why: store.Damaged}, gaps[1])

	require.NoError(t, f.store.Close())
	require.NoError(t, os.RemoveAll(f.cfg.Dir))
	f.open(t)
	assert.Equal(t, store.Pos(1), appendTo(t, f.Log(t, "events"), 100))

	// If somebody else knows that the store had the log, its loss is named.
	require.NoError(t, f.store.Close())
	require.NoError(t, os.RemoveAll(f.cfg.Dir))
	f.cfg.Had = []string{"events"}
	f.open(t)
	assert.Equal(t, store.Pos(1+lostMargin), appendTo(t, f.Log(t, "events"), 100))
	_, gaps = read(t, f.Log(t, "events"))
	assert.Equal(t, []store.Gap{{From: 1, To: lostMargin, Why: store.Doubtful}}, gaps)
	assert.Equal(t, store.Pos(1), appendTo(t, f.Log(t, "another"), 100))
	f.Kill(t)
	assert.Equal(t, store.Pos(2+lostMargin), appendTo(t, f.Log(t, "events"), 100))
}
