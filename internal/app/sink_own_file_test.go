package app

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// No sink can be told to write into what the relay keeps in its data directory.
func TestNoSinkWritesIntoTheRelaysOwnFiles(t *testing.T) {
	t.Parallel()
	cfg := testConfig(t.TempDir())
	r := start(t, cfg)
	r.push("a")
	r.awaitReady("audit trail: ")
	files, err := os.ReadDir(cfg.DataDir)
	require.NoError(t, err)
	require.NoError(t, r.stop())
	stopped, err := os.ReadDir(cfg.DataDir)
	require.NoError(t, err)
	for _, f := range append(files, stopped...) {
		if filepath.Ext(f.Name()) == ".tmp" { // it was being written, and nobody can know its name before
			continue
		}
		cfg.Sinks[0].File.Path = filepath.Join(cfg.DataDir, f.Name())
		assert.ErrorContains(t, cfg.Validate(), "is what the relay itself keeps there", f.Name())
	}
	cfg.Sinks[0].File.Path = filepath.Join(cfg.DataDir, "events.jsonl")
	assert.NoError(t, cfg.Validate())
}
