package file

import (
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/internal/testbed/readback"
	"github.com/auditrelay/auditrelay/relay/relaytest"
)

// rotated names the rotated files, oldest first.
func rotated(path string) ([]string, error) {
	names, err := readback.Files(path)
	return names[:max(0, len(names)-1)], err
}

func TestRotationBySize(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "events.jsonl")
	s := newSink(t, config.File{Path: path, RotateBytes: 20_000})
	events := relaytest.Events(200)
	for i := 0; i < len(events); i += 5 {
		require.NoError(t, s.Deliver(t.Context(), events[i:i+5]))
	}
	names, err := rotated(path)
	require.NoError(t, err)
	assert.Greater(t, len(names), 5)
	for _, name := range append(names, path) {
		info, err := os.Stat(name)
		require.NoError(t, err)
		assert.LessOrEqual(t, info.Size(), int64(20_000))
		assert.Positive(t, info.Size())
	}
	requireIDs(t, events, path)
}

// The periods are those of the calendar, so a restart does not begin a new one.
func TestRotationByTime(t *testing.T) {
	path := filepath.Join(t.TempDir(), "events.jsonl")
	synctest.Test(t, func(t *testing.T) { // starts at midnight UTC
		events := relaytest.Events(40)
		deliver := func(from int) {
			s := New(complete(t, config.File{Path: path, RotateEvery: time.Hour}), Options{})
			require.NoError(t, s.Deliver(t.Context(), events[from:from+5]))
			time.Sleep(20 * time.Minute)
			require.NoError(t, s.Deliver(t.Context(), events[from+5:from+10]))
			require.NoError(t, s.Close())
			// The file gets its time from the system's clock, which knows nothing of the
			// bubble's.
			require.NoError(t, os.Chtimes(path, time.Now(), time.Now()))
		}
		deliver(0) // 00:00, 00:20
		time.Sleep(20 * time.Minute)
		deliver(10) // 00:40, 01:00
		names, err := rotated(path)
		require.NoError(t, err)
		require.Len(t, names, 1)
		requireIDs(t, events[:15], names[0])
		time.Sleep(time.Hour)
		deliver(20) // 02:00, by a sink that finds the file of 01:00
		names, err = rotated(path)
		require.NoError(t, err)
		require.Len(t, names, 2)
		requireIDs(t, events[:30], path)
	})
}

func TestOldFilesAreRemoved(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "events.jsonl")
	bystander := filepath.Join(dir, "events-of-mine.jsonl")
	require.NoError(t, os.WriteFile(bystander, []byte("keep me\n"), 0o600))
	s := newSink(t, config.File{Path: path, RotateBytes: 1, Keep: 3})
	events := relaytest.Events(10)
	for i := range events {
		require.NoError(t, s.Deliver(t.Context(), events[i:i+1]))
	}
	names, err := rotated(path)
	require.NoError(t, err)
	assert.Len(t, names, 3)
	requireIDs(t, events[6:], path)
	assert.FileExists(t, bystander)
}

// After the clock is set back, a new file still sorts after the earlier ones.
func TestNamesStayInOrder(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 3, 8, 30, 0, 5, time.UTC)
	old := []archive{{name: rotatedName("/d/e.jsonl", now.Add(time.Hour))}}
	name := rotatedName("/d/e.jsonl", nextStamp("/d/e.jsonl", old, now))
	assert.Greater(t, name, old[0].name)
	assert.Equal(t, "/d/e-20261103T093000.000000006Z.jsonl", name)
	assert.Equal(t, now, nextStamp("/d/e.jsonl", nil, now))
}
