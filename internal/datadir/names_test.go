package datadir

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/internal/datadir/natsserver"
)

// watchedNames makes a stream S with some blocks, and counts the syncs by folder.
func watchedNames(t testing.TB, blocks ...string) (n *names, block func(name string) string, syncs map[string]int) {
	t.Helper()
	n, syncs = newNames(t.TempDir()), map[string]int{}
	n.sync = func(folder string) error {
		syncs[folder]++
		return nil
	}
	n.forget()
	msgs := filepath.Join(StreamDir(n.dir, "S"), natsserver.MessagesDir)
	require.NoError(t, os.MkdirAll(msgs, 0o700))
	block = func(name string) string { return filepath.Join(msgs, name) }
	for _, name := range blocks {
		require.NoError(t, os.WriteFile(block(name), nil, 0o600))
	}
	return n, block, syncs
}

func TestTheNameOfANewBlockIsSynced(t *testing.T) {
	t.Parallel()
	n, block, syncs := watchedNames(t, "1.blk")
	msgs := filepath.Join(StreamDir(n.dir, "S"), natsserver.MessagesDir)
	for range 3 {
		require.NoError(t, n.settle("S"))
	}
	assert.Equal(t, 1, syncs[msgs])
	assert.Equal(t, 1, syncs[n.dir], "so are the names of the folders above")
	assert.NotContains(t, syncs, filepath.Dir(n.dir))

	require.NoError(t, os.WriteFile(block("2.blk"), nil, 0o600))
	require.NoError(t, n.settle("S"))
	require.NoError(t, n.settle("S"))
	assert.Equal(t, 2, syncs[msgs])
	assert.Equal(t, 1, syncs[n.dir])

	// Between two records, a trim removed the known blocks, and the next one too.
	require.NoError(t, os.Remove(block("1.blk")))
	n.shrink("S")
	require.NoError(t, n.settle("S"))
	assert.Equal(t, 2, syncs[msgs])
	require.NoError(t, os.WriteFile(block("4.blk"), nil, 0o600))
	n.shrink("S")
	require.NoError(t, n.settle("S"))
	require.NoError(t, n.settle("S"))
	assert.Equal(t, 3, syncs[msgs])

	n.remade("S") // under another stream's block of the same number
	require.NoError(t, n.settle("S"))
	assert.Equal(t, 4, syncs[msgs])
	assert.Equal(t, 2, syncs[n.dir])

	n.forget() // a new server
	require.NoError(t, n.settle("S"))
	assert.Equal(t, 5, syncs[msgs])
}

func TestANameThatCannotBeSyncedIsTriedAgain(t *testing.T) {
	t.Parallel()
	n, block, _ := watchedNames(t, "1.blk")
	require.NoError(t, n.settle("S"))
	require.NoError(t, os.WriteFile(block("2.blk"), nil, 0o600))
	failing := errors.New("fsync failed")
	sound := n.sync
	n.sync = func(string) error { return failing }
	for range 2 {
		require.ErrorIs(t, n.settle("S"), failing, "nobody may be told that the record is kept")
	}
	n.sync = sound
	require.NoError(t, n.settle("S"))
	require.Error(t, n.settle("another"), "a stream without a block")
}

// BenchmarkSettle measures the cost for each commit into a known block.
func BenchmarkSettle(b *testing.B) {
	n, _, _ := watchedNames(b, "1.blk")
	for b.Loop() {
		if err := n.settle("S"); err != nil {
			b.Fatal(err)
		}
	}
}
