package file

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/internal/testbed/readback"
	"github.com/auditrelay/auditrelay/relay"
	"github.com/auditrelay/auditrelay/relay/relaytest"
)

func TestContract(t *testing.T) {
	t.Parallel()
	for name, cfg := range map[string]config.File{
		"one file":   {RotateBytes: -1},
		"many files": {RotateBytes: 64 << 10},
		"compressed": {RotateBytes: 64 << 10, Gzip: true},
	} {
		cfg.NoSync = true // nothing in the suite needs more than the write itself
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			relaytest.Run(t, relaytest.Harness{New: func(t *testing.T) relaytest.Destination {
				return destination(t, cfg)
			}})
		})
	}
}

func destination(t *testing.T, cfg config.File) relaytest.Destination {
	dir := filepath.Join(t.TempDir(), "events")
	away := dir + ".away"
	cfg.Path = filepath.Join(dir, "events.jsonl")
	return relaytest.Destination{
		Sink:    newSink(t, cfg),
		Arrived: func() []relaytest.Arrival { return arrived(t, cfg.Path) },
		Down: func() { // a file takes the place of the directory
			if _, err := os.Stat(dir); err == nil {
				require.NoError(t, os.Rename(dir, away))
			}
			require.NoError(t, os.WriteFile(dir, nil, 0o600))
		},
		Up: func() {
			require.NoError(t, os.Remove(dir))
			if _, err := os.Stat(away); err == nil {
				require.NoError(t, os.Rename(away, dir))
			}
		},
	}
}

func newSink(t *testing.T, cfg config.File) *Sink {
	t.Helper()
	s := New(complete(t, cfg), Options{})
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func arrived(t *testing.T, path string) []relaytest.Arrival {
	t.Helper()
	var out []relaytest.Arrival
	for r, err := range readback.Records(path) {
		require.NoError(t, err)
		out = append(out, relaytest.Arrival{ID: r.ID(), Body: r.Body, Attributes: r.Attributes})
	}
	return out
}

func requireIDs(t *testing.T, want []relay.Event, path string) {
	t.Helper()
	got := arrived(t, path)
	require.Len(t, got, len(want))
	for i := range want {
		require.Equal(t, want[i].ID, got[i].ID)
		require.Equal(t, string(want[i].Body), string(got[i].Body))
	}
}

func TestFilesAreForTheirOwnerOnly(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "a", "b", "events.jsonl")
	s := newSink(t, config.File{Path: path})
	require.NoError(t, s.Deliver(t.Context(), relaytest.Events(3)))
	for name, mode := range map[string]os.FileMode{path: 0o600, filepath.Dir(path): 0o700, filepath.Dir(filepath.Dir(path)): 0o700} {
		info, err := os.Stat(name)
		require.NoError(t, err)
		assert.Equal(t, mode, info.Mode().Perm(), name)
	}
}

// When log rotation from outside moves the file, the sink must not go on writing to it.
func TestMovedFileIsLeft(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "events.jsonl")
	s := newSink(t, config.File{Path: path})
	events := relaytest.Events(20)
	require.NoError(t, s.Deliver(t.Context(), events[:10]))
	require.NoError(t, os.Rename(path, path+".1"))
	require.NoError(t, s.Deliver(t.Context(), events[10:]))
	requireIDs(t, events[:10], path+".1")
	requireIDs(t, events[10:], path)
}

// complete fills in the defaults of a section, as the configuration does. Tests rotate at sizes
// below those that the configuration allows.
func complete(t testing.TB, cfg config.File) config.File {
	t.Helper()
	rotateBytes := cfg.RotateBytes
	cfg.RotateBytes = 0
	require.NoError(t, (&config.Sink{Name: "test", File: &cfg}).Complete())
	if rotateBytes != 0 {
		cfg.RotateBytes = rotateBytes
	}
	return cfg
}
