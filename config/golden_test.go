package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestBadFiles compares the errors of each file in testdata/bad with the .txt file of the same
// name. UPDATE_GOLDEN=1 writes those again.
func TestBadFiles(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/bad/*.yaml")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	env := environment(map[string]string{"KEY": "hunter2-key-of-some-length", "SHORT": "hunter2-key", "EMPTY": "", "HOST": "management.example.com"})
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			t.Parallel()
			data, err := os.ReadFile(file)
			require.NoError(t, err)
			cfg, _, err := Parse(filepath.Base(file), data, env)
			require.Error(t, err)
			assert.Nil(t, cfg)
			assert.NotContains(t, err.Error(), "hunter2", "a secret is in the error")

			golden := strings.TrimSuffix(file, "yaml") + "txt"
			if os.Getenv("UPDATE_GOLDEN") != "" {
				require.NoError(t, os.WriteFile(golden, []byte(err.Error()+"\n"), 0o600))
			}
			want, err2 := os.ReadFile(golden)
			require.NoError(t, err2)
			assert.Equal(t, string(want), err.Error()+"\n")
		})
	}
}
