package blockfile

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/internal/testbed/natstest"
)

// leastWindow is the shortest duplicate window of a server's stream.
const leastWindow = 100 * time.Millisecond

// serve runs a server on dir while use does something to its stream.
func serve(t *testing.T, dir string, window time.Duration, use func(js jetstream.JetStream, stream jetstream.Stream)) {
	t.Helper()
	js, stop := natstest.Serve(t, dir, natstest.SyncAlways)
	defer stop()
	stream, err := js.CreateOrUpdateStream(t.Context(), jetstream.StreamConfig{
		Name: "S", Subjects: []string{"s"}, MaxBytes: 100_000, Duplicates: window, // so it makes blocks of 32 KB
	})
	require.NoError(t, err)
	use(js, stream)
}

func publish(t *testing.T, js jetstream.JetStream, n int) {
	t.Helper()
	for range n {
		data := make([]byte, 4000+rand.IntN(2000))
		_, err := js.Publish(t.Context(), "s", data)
		require.NoError(t, err)
	}
}

// encoded makes the index of the blocks as they are.
func encoded(t *testing.T, dir string) []byte {
	t.Helper()
	paths, err := List(dir)
	require.NoError(t, err)
	var all []Summary
	buried := map[uint64]bool{}
	for round := range 2 { // the second knows all tombstones
		all = all[:0]
		for _, path := range paths {
			b, err := Read("S", path)
			require.NoError(t, err)
			s, ok := Summarise(b.Index, b.Frames(0), func(seq uint64) bool { return buried[seq] })
			require.True(t, ok, "round %d, %s", round, path)
			all = append(all, s)
			for _, r := range s.Tombstones {
				for seq := r.From; seq <= r.To; seq++ {
					buried[seq] = true
				}
			}
		}
	}
	checksum, err := LastChecksum(paths[len(paths)-1])
	require.NoError(t, err)
	text, ok := EncodeIndex("S", all, checksum)
	require.True(t, ok)
	return text
}

// Our index is the server's own, byte for byte, as written after reading all blocks. This
// goes red when a version of the server writes another.
func TestTheIndexIsTheServersOwn(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(js jetstream.JetStream, stream jetstream.Stream){
		"plain": func(jetstream.JetStream, jetstream.Stream) {},
		"trimmed within a block": func(_ jetstream.JetStream, stream jetstream.Stream) {
			require.NoError(t, stream.Purge(t.Context(), jetstream.WithPurgeSequence(3)))
		},
		"trimmed by blocks": func(_ jetstream.JetStream, stream jetstream.Stream) {
			require.NoError(t, stream.Purge(t.Context(), jetstream.WithPurgeSequence(10)))
		},
		"trimmed, and written to": func(js jetstream.JetStream, stream jetstream.Stream) {
			require.NoError(t, stream.Purge(t.Context(), jetstream.WithPurgeSequence(9)))
			publish(t, js, 5)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			serve(t, dir, leastWindow, func(js jetstream.JetStream, stream jetstream.Stream) {
				publish(t, js, 18)
				change(js, stream)
			})
			assertSameIndex(t, dir)
		})
	}
}

// Holes in blocks and a moved end are as the server takes them, once it has read
// the blocks.
func TestTheIndexOfMendedBlocksIsTheServersOwn(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	serve(t, dir, leastWindow, func(js jetstream.JetStream, _ jetstream.Stream) { publish(t, js, 18) })
	paths, err := List(streamDir(dir))
	require.NoError(t, err)
	b, err := Read("S", paths[1])
	require.NoError(t, err)
	frames := b.Frames(0)
	out := slices.Delete(slices.Clone(b.Bytes), frames[1].Offset, frames[3].Offset)
	require.NoError(t, os.WriteFile(paths[1], out, 0o600))
	msgs := filepath.Dir(paths[1])
	require.NoError(t, os.WriteFile(filepath.Join(msgs, "9.blk"), New("S", "", 9, nil).TombstoneFrame(25, time.Now()), 0o600))
	assertSameIndex(t, dir)
	serve(t, dir, leastWindow, func(js jetstream.JetStream, _ jetstream.Stream) { publish(t, js, 2) })
	assertSameIndex(t, dir)
}

func streamDir(dir string) string { return filepath.Join(dir, "jetstream", "$G", "streams", "S") }

// assertSameIndex has the server read all blocks and write its index.
func assertSameIndex(t *testing.T, dir string) {
	t.Helper()
	index := filepath.Join(streamDir(dir), "msgs", "index.db")
	require.NoError(t, os.Remove(index))
	ours := encoded(t, streamDir(dir))
	serve(t, dir, leastWindow, func(jetstream.JetStream, jetstream.Stream) {})
	theirs, err := os.ReadFile(index)
	require.NoError(t, err)
	assert.Equal(t, theirs, ours)
}

func TestABlockThatIsNotPlainHasNoSummary(t *testing.T) {
	t.Parallel()
	none := func(uint64) bool { return false }
	frames := testBlock(5, 50).Frames(0)
	s, ok := Summarise(1, frames, none)
	require.True(t, ok)
	assert.Equal(t, []uint64{1, 5, 5}, []uint64{s.First, s.Last, s.Messages})
	assert.True(t, s.Holds(5) && !s.Holds(6) && !s.Holds(0))
	_, ok = Summarise(1, frames, func(seq uint64) bool { return seq == 3 })
	assert.False(t, ok, "a message is deleted between others")
	_, ok = Summarise(1, frames, func(uint64) bool { return true })
	assert.False(t, ok, "nothing is left")
	frames[2].Kind = Erased
	_, ok = Summarise(1, frames, none)
	assert.False(t, ok)
	_, ok = Summarise(1, nil, none)
	assert.False(t, ok)
	_, ok = EncodeIndex("S", []Summary{s, s}, [8]byte{})
	assert.False(t, ok, "twice the same")
	_, ok = EncodeIndex("S", nil, [8]byte{})
	assert.False(t, ok)
}
