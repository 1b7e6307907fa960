package disk

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/internal/store"
)

// twoLogs is a store with the logs events and letters, whose ends the table was told.
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
	if name == "events" { // the table knows the end of any other log exactly
		want, next = append(want, store.Gap{From: end + 1, To: end + lostMargin, Why: store.Doubtful}), end+lostMargin+1
	}
	if end == 0 {
		want = want[1:]
	}
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
		assert.Equal(t, want, gaps)
		f.Kill(t)
		l = f.Log(t, name)
	}
	assert.Equal(t, next, appendTo(t, l, 100))
	f.Kill(t)
	records, gaps := read(t, f.Log(t, name))
	assert.Equal(t, []store.Pos{next}, records)
	assert.Equal(t, want, gaps)
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
		"another's folder, and its own end mark is lost": func(t *testing.T, f *folder) {
			require.NoError(t, os.RemoveAll(f.at("events")))
			require.NoError(t, os.CopyFS(f.at("events"), os.DirFS(f.at("letters"))))
			require.NoError(t, os.Remove(f.at("events", endFile)))
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
	assert.Equal(t, store.Pos(7+lostMargin+1), appendTo(t, f.Log(t, "events"), 100))
	f.Kill(t)
	records, gaps := read(t, f.Log(t, "events"))
	assert.Equal(t, []store.Pos{1, 2, 3, 4, 5, 7 + lostMargin + 1}, records)
	assert.Equal(t, []store.Gap{{From: 6, To: 7, Why: store.Damaged}, {From: 8, To: 7 + lostMargin, Why: store.Doubtful}}, gaps)
	assert.Equal(t, before, f.ids(t))
}

// A log whose process was killed right after it was made is known, and what was appended
// before the table was told is in doubt. A start that is killed before its end mark is
// written changes nothing.
func TestALogIsKnownFromTheStart(t *testing.T) {
	t.Parallel()
	for _, appended := range []int{0, 3} {
		f := openFolder(t).(*folder)
		for range appended {
			appendTo(t, f.Log(t, "events"), 100)
		}
		before := f.ids(t)
		f.store.stop()
		<-f.store.stopped
		require.NoError(t, f.store.guard.Close())
		require.NoError(t, os.RemoveAll(f.at("events")))
		f.open(t)
		f.Log(t, "events")
		f.Kill(t)
		require.NoError(t, os.Remove(f.at("events", endFile)))
		f.wentOn(t, "events", 0)
		assert.Equal(t, before, f.ids(t), fmt.Sprint(appended))
	}
}

// The table is told of each record of a log that is not busy. After a power cut it may know
// less, so that nobody knows how many there were.
func TestTheTableKnowsTheEndOfAQuietLog(t *testing.T) {
	t.Parallel()
	for _, rebooted := range []bool{false, true} {
		f := openFolder(t).(*folder)
		for range 3 {
			appendTo(t, f.Log(t, "letters"), 100)
		}
		f.store.stop()
		<-f.store.stopped
		require.NoError(t, f.store.guard.Close())
		require.NoError(t, os.RemoveAll(f.at("letters")))
		boot := bootID()
		if rebooted {
			boot[0]++
		}
		var err error
		f.store, err = open(f.cfg, osFS{}, boot)
		require.NoError(t, err)
		next := store.Pos(4)
		if rebooted {
			next += lostMargin
		}
		assert.Equal(t, next, appendTo(t, f.Log(t, "letters"), 100))
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
