package journal

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/cespare/xxhash/v2"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/auditrelay/auditrelay/internal/datadir/blockfile"
	"github.com/auditrelay/auditrelay/internal/testbed/waiting"
)

// A start after a kill takes an already verified block on trust. Where it has rotted since,
// below the file system, one record is lost, and named: nobody has the server read the
// block before it is mended.
func TestABlockThatRotsAfterItWasVerified(t *testing.T) {
	t.Parallel()
	for _, at := range []int{1, 5, 1000} { // of a record's length, its sequence, its body
		t.Run(fmt.Sprintf("byte %d", at), func(t *testing.T) {
			t.Parallel()
			w := newWreck(t, 60, 20)
			written := time.Now()
			open(t, w.dir, w.cfg).shut(t) // a start notes its verified blocks
			// A starting server reads the records of its duplicate window: the last 100 ms.
			waiting.Until(t, func() bool { return time.Since(written) > 200*time.Millisecond })
			path := w.blocks(t)[8]
			b, err := blockfile.Read(w.names.events, path)
			require.NoError(t, err)
			rotten := b.Frames(0)[1]
			flip(t, path, rotten.Offset+at, 3)
			w.renote(t, path)
			w.dropIndex(t)

			j := open(t, w.dir, w.cfg)
			assert.Empty(t, j.conn.Mended, "the start has read the block")
			j.shut(t)
			assert.Equal(t, []uint64{rotten.Seq}, w.account(t, "fresh"))
			assert.Zero(t, w.verify(t).Open())
		})
	}
}

// A verified block has got a bad sector since: no sink waits for it forever.
func TestAVerifiedBlockThatTheDiskNoLongerGives(t *testing.T) {
	t.Parallel()
	w := newWreck(t, 60, 20)
	written := time.Now()
	open(t, w.dir, w.cfg).shut(t)
	path := w.blocks(t)[8]
	b, err := blockfile.Read(w.names.events, path)
	require.NoError(t, err)
	var lost []uint64
	for _, f := range b.Frames(0) {
		lost = append(lost, f.Seq)
	}
	badSector(t, path)
	w.renote(t, path)
	w.dropIndex(t)
	waiting.Until(t, func() bool { return time.Since(written) > 200*time.Millisecond }) // see above
	j := open(t, w.dir, w.cfg)
	assert.Empty(t, j.conn.Mended, "the start has read the block")
	j.shut(t)
	assert.Equal(t, lost, w.account(t, "fresh"))
	assert.Zero(t, w.verify(t).Open())
}

// A write to a block shows, and has the start read it.
func TestANoteIsOfOneFile(t *testing.T) {
	t.Parallel()
	w := newWreck(t, 24, 0)
	open(t, w.dir, w.cfg).shut(t)
	path := w.blocks(t)[2]
	b, err := blockfile.Read(w.names.events, path)
	require.NoError(t, err)
	before, err := os.Stat(path)
	require.NoError(t, err)
	flip(t, path, b.Frames(0)[1].Offset+1000, 3)
	require.NoError(t, os.Chtimes(path, before.ModTime(), before.ModTime()))
	w.dropIndex(t)
	j := open(t, w.dir, w.cfg)
	assert.Len(t, j.conn.Mended, 1)
	j.shut(t)
}

// renote makes the note of a block fit the present file.
func (w *wreck) renote(t *testing.T, path string) {
	t.Helper()
	var s unix.Stat_t
	require.NoError(t, unix.Stat(path, &s))
	index, err := blockfile.IndexOf(path)
	require.NoError(t, err)
	file := filepath.Join(w.dir, "marks", "sealed", w.names.events)
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	found := false
	var out []byte
	for line := range bytes.Lines(text) {
		_, rest, ok := bytes.Cut(bytes.TrimSpace(line), []byte{' '})
		if !ok {
			continue
		}
		var note map[string]any
		decoder := json.NewDecoder(bytes.NewReader(rest))
		decoder.UseNumber()
		require.NoError(t, decoder.Decode(&note))
		if note["block"] == json.Number(fmt.Sprint(index)) {
			found = true
			note["Size"], note["Inode"], note["Modified"], note["Changed"] = s.Size, s.Ino, s.Mtim.Nano(), s.Ctim.Nano()
		}
		rest, err = json.Marshal(note)
		require.NoError(t, err)
		out = fmt.Appendf(out, "%x %s\n", xxhash.Sum64(rest), rest)
	}
	require.True(t, found, "there is no note of the block")
	require.NoError(t, os.WriteFile(file, out, 0o600))
}
