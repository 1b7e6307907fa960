package datadir

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestTheNewestBlockIsRenewed(t *testing.T) {
	t.Parallel()
	folder := filepath.Join(t.TempDir(), "jetstream", "$G", "streams", "S", "msgs")
	require.NoError(t, os.MkdirAll(folder, 0o700))
	for _, name := range []string{"9.blk", "10.blk", "index.db", "x.blk"} {
		require.NoError(t, os.WriteFile(filepath.Join(folder, name), []byte(name), 0o600))
	}
	before, err := os.Stat(filepath.Join(folder, "10.blk"))
	require.NoError(t, err)
	older, err := os.Stat(filepath.Join(folder, "9.blk"))
	require.NoError(t, err)
	require.NoError(t, renewNewestBlock(filepath.Dir(folder)))
	now, err := os.Stat(filepath.Join(folder, "10.blk"))
	require.NoError(t, err)
	assert.False(t, os.SameFile(before, now), "the newest file was not written anew")
	assert.Equal(t, before.Mode(), now.Mode())
	same, err := os.Stat(filepath.Join(folder, "9.blk"))
	require.NoError(t, err)
	assert.True(t, os.SameFile(older, same))
	text, err := os.ReadFile(filepath.Join(folder, "10.blk"))
	require.NoError(t, err)
	assert.Equal(t, "10.blk", string(text))
	left, err := os.ReadDir(folder)
	require.NoError(t, err)
	assert.Len(t, left, 4, "nothing is left over")
}

func TestADiskWithoutSpaceIsFound(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	require.NoError(t, tryDisk(dir))
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	assert.Empty(t, left)
	require.Error(t, tryDisk(filepath.Join(dir, "missing")))
}
