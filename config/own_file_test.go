package config

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// However a path leads to a file of the relay, a sink may not have it.
func TestAFileOfTheRelayIsFoundByEveryPath(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)
	t.Chdir(dir)
	for _, made := range []string{"data/store", "keys", "other"} {
		require.NoError(t, os.MkdirAll(made, 0o700))
	}
	require.NoError(t, os.WriteFile("data/audit.key", nil, 0o600))
	for link, to := range map[string]string{
		"key.jsonl":        filepath.Join(dir, "data/audit.key"),
		"other/key.jsonl":  "../data/audit.key",
		"other/soon.jsonl": "../data/admin.token", // it is not there yet
		"other/twice":      "soon.jsonl",
		"folder":           "data",
		"other/store":      "../folder/store",
		"outside.jsonl":    "other/events.jsonl",
		"circle":           "circle",
	} {
		require.NoError(t, os.Symlink(to, link))
	}
	refused := []string{
		"data/audit.key", "data/store/x", "key.jsonl", "other/key.jsonl", "other/soon.jsonl", "other/twice", "folder/audit.key", "folder/tlog/x", "other/store/log",
		"other/store/../audit.key", "other/new/../../data/audit.key", "keys/trail.key", "keys/trail.key.checkpoint",
	}
	taken := []string{"data/events.jsonl", "folder/events.jsonl", "other/events.jsonl", "outside.jsonl", "circle", "circle/x", "keys/other.key", "new/store/events.jsonl"}
	for _, dataDir := range []string{"data", "folder", filepath.Join(dir, "data"), filepath.Join(dir, "folder")} {
		for _, root := range []string{"", dir + "/"} {
			found := func(path string) error {
				c, _, err := parse(t, minimal)
				require.NoError(t, err)
				c.DataDir, c.Audit.KeyFile, c.Audit.CheckpointFile = dataDir, "keys/trail.key", "keys/trail.key.checkpoint"
				c.Sinks = []Sink{{Name: "one", File: &File{Path: root + path}}}
				c.SetDefaults()
				return c.Validate()
			}
			for _, path := range refused {
				assert.ErrorContains(t, found(path), "is what the relay itself keeps there", "%s with %s", path, dataDir)
			}
			for _, path := range taken {
				assert.NoError(t, found(path), "%s with %s", path, dataDir)
			}
		}
	}
}
