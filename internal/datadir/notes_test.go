package datadir

import (
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/internal/datadir/blockfile"
	"github.com/auditrelay/auditrelay/internal/datadir/natsserver"
)

// noted makes notes of n files in place of blocks.
func noted(t *testing.T, n uint32) (d *Dir, paths []string) {
	t.Helper()
	d = New(t.TempDir(), Layout{Events: "E"}, nil)
	known := d.readNotes("E", slog.New(slog.DiscardHandler))
	for i := range n {
		path := filepath.Join(d.path, string('1'+rune(i))+".blk")
		require.NoError(t, os.WriteFile(path, []byte("block"), 0o600))
		as, err := identify(path)
		require.NoError(t, err)
		require.NoError(t, known.add(path, note{as, blockfile.Summary{IndexBlock: natsserver.IndexBlock{Index: i + 1, First: uint64(i)}, Subjects: map[string]uint64{"s": 1}}}))
		paths = append(paths, path)
	}
	return d, paths
}

// known counts the blocks with a trusted note.
func known(d *Dir, paths []string) (n int) {
	notes := d.readNotes("E", slog.New(slog.DiscardHandler))
	for _, path := range paths {
		if one, ok := notes.of(path); ok && one.Subjects["s"] == 1 {
			n++
		}
	}
	return n
}

// A flipped bit or a lost end anywhere never invents a note.
func TestADamagedNoteIsLeftOut(t *testing.T) {
	t.Parallel()
	d, paths := noted(t, 3)
	file := filepath.Join(d.path, "marks", notesDir, "E")
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, 3, known(d, paths))
	for at := range text {
		flipped := append([]byte(nil), text...)
		flipped[at] ^= 1 << (at % 8)
		require.NoError(t, os.WriteFile(file, flipped, 0o600))
		assert.GreaterOrEqual(t, known(d, paths), 1, "byte %d", at)
		require.NoError(t, os.WriteFile(file, text[:at], 0o600))
		assert.LessOrEqual(t, known(d, paths), 3)
	}
}

func TestANoteOfAnotherFileIsNotBelieved(t *testing.T) {
	t.Parallel()
	d, paths := noted(t, 4)
	info, err := os.Stat(paths[0])
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(paths[0], []byte("BLOCK"), 0o600))
	require.NoError(t, os.Chtimes(paths[0], info.ModTime(), info.ModTime())) // the same size and time
	require.NoError(t, os.Remove(paths[1]))
	require.NoError(t, os.Rename(paths[3], paths[2]))
	assert.Zero(t, known(d, paths))
}

func TestNotesAreTrimmedWithTheirBlocks(t *testing.T) {
	t.Parallel()
	d, paths := noted(t, 3)
	notes := d.readNotes("E", slog.New(slog.DiscardHandler))
	notes.lines = 5000
	require.NoError(t, notes.trim(3))
	assert.Equal(t, 1, known(d, paths))
	require.NoError(t, notes.drop(3))
	assert.Zero(t, known(d, paths))
}
