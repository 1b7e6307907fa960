package cli

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestTheUsualConfiguration(t *testing.T) {
	t.Parallel()
	usual := filepath.Join(t.TempDir(), "relay.yaml")
	assert.Empty(t, defaultConfig("", usual), "there is none")
	require.NoError(t, os.WriteFile(usual, nil, 0o600))
	assert.Equal(t, usual, defaultConfig("", usual))
	assert.Equal(t, "named.yaml", defaultConfig("named.yaml", usual))
}
