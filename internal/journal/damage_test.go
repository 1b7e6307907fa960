package journal

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/internal/datadir"
	"github.com/auditrelay/auditrelay/internal/datadir/blockfile"
	"github.com/auditrelay/auditrelay/relay/relaytest"
)

// Each damage is done to a journal closed cleanly, and to one without its index, as after a
// crash: the server then reads the blocks again.
func TestDamageIsNamedAndTheRestIsDelivered(t *testing.T) {
	t.Parallel()
	damages := map[string]func(t *testing.T, w *wreck, rng *rand.Rand) (worst int){
		"one bit": func(t *testing.T, w *wreck, rng *rand.Rand) int {
			path, at := w.anywhere(t, rng)
			flip(t, path, at, rng.UintN(8))
			return 1
		},
		"bits": func(t *testing.T, w *wreck, rng *rand.Rand) int {
			for range 5 {
				path, at := w.anywhere(t, rng)
				flip(t, path, at, rng.UintN(8))
			}
			return 5
		},
		"a page of zeros": func(t *testing.T, w *wreck, rng *rand.Rand) int {
			path, at := w.anywhere(t, rng)
			data, err := os.ReadFile(path)
			require.NoError(t, err)
			clear(data[at:min(len(data), at+4096)])
			require.NoError(t, os.WriteFile(path, data, 0o600))
			return 3
		},
		"torn end": func(t *testing.T, w *wreck, rng *rand.Rand) int {
			paths := w.blocks(t)
			info, err := os.Stat(paths[len(paths)-1])
			require.NoError(t, err)
			n := rng.Int64N(min(info.Size(), 40_000)) + 1
			require.NoError(t, os.Truncate(paths[len(paths)-1], info.Size()-n))
			return 6
		},
		"a block is gone": func(t *testing.T, w *wreck, rng *rand.Rand) int {
			paths := w.blocks(t)
			require.NoError(t, os.Remove(paths[rng.IntN(len(paths))]))
			return 4
		},
		"a position": func(t *testing.T, w *wreck, rng *rand.Rand) int {
			path := filepath.Join(datadir.StreamDir(w.dir, w.names.events), "obs", consumerPrefix+"k", "o.dat")
			flip(t, path, rng.IntN(9), rng.UintN(8))
			return 0
		},
		"a description": func(t *testing.T, w *wreck, rng *rand.Rand) int {
			path := filepath.Join(datadir.StreamDir(w.dir, w.names.events), "meta.inf")
			data, err := os.ReadFile(path)
			require.NoError(t, err)
			flip(t, path, rng.IntN(len(data)), rng.UintN(8))
			return 0
		},
		"a consumer's description": func(t *testing.T, w *wreck, rng *rand.Rand) int {
			path := filepath.Join(datadir.StreamDir(w.dir, w.names.events), "obs", consumerPrefix+"k", "meta.inf")
			data, err := os.ReadFile(path)
			require.NoError(t, err)
			flip(t, path, rng.IntN(len(data)), rng.UintN(8))
			return 0
		},
		"a mark": func(t *testing.T, w *wreck, rng *rand.Rand) int {
			names := []string{datadir.Acknowledged, consumerPrefix + "k"}
			flip(t, filepath.Join(w.dir, "marks", names[rng.IntN(len(names))]), rng.IntN(16), rng.UintN(8))
			return 0
		},
		"the index": func(t *testing.T, w *wreck, rng *rand.Rand) int {
			path := filepath.Join(datadir.StreamDir(w.dir, w.names.events), "msgs", "index.db")
			data, err := os.ReadFile(path)
			require.NoError(t, err)
			flip(t, path, rng.IntN(len(data)), rng.UintN(8))
			return 0
		},
	}
	sound := newWreck(t, 60, 40)
	for name, damage := range damages {
		for seed := range uint64(5) {
			for _, crashed := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s/seed %d/crashed %t", name, seed, crashed), func(t *testing.T) {
					t.Parallel()
					w := sound.copied(t)
					worst := damage(t, w, rand.New(rand.NewPCG(seed, 1)))
					if crashed {
						w.dropIndex(t)
					}
					before := snapshot(t, w.dir)
					found := w.verify(t)
					assert.Equal(t, before, snapshot(t, w.dir), "verify changes files")
					lost := w.account(t, "fresh")
					t.Logf("lost positions: %v", lost)
					for _, p := range lost {
						assert.True(t, slices.ContainsFunc(found.Problems, func(f datadir.Problem) bool { return f.From <= p && p <= f.To }), "verify does not name position %d: %v", p, found.Problems)
					}
					if len(lost) > 0 {
						assert.Positive(t, found.Open())
					}
					assert.LessOrEqual(t, len(lost), worst, "more is lost than was damaged")
					assert.Equal(t, lost, w.account(t, "later"), "the second start finds the same")
					settled := w.verify(t)
					assert.Zero(t, settled.Open(), "%v", settled.Problems)
				})
			}
		}
	}
}

// The server keeps no checksum of a position: damage looks like another one.
func TestAPositionThatRunsAheadIsSetBack(t *testing.T) {
	t.Parallel()
	sound := newWreck(t, 60, 40)
	for _, ahead := range []uint64{45, 60, 1 << 40} {
		w := sound.copied(t)
		path := filepath.Join(datadir.StreamDir(w.dir, w.names.events), "obs", consumerPrefix+"k", "o.dat")
		data := []byte{22, 2}
		for _, n := range []uint64{40, ahead, 40, ahead, 0, 0} {
			data = binary.AppendUvarint(data, n)
		}
		require.NoError(t, os.WriteFile(path, data, 0o600))
		problems := w.verify(t).Problems
		require.Len(t, problems, 1)
		assert.Contains(t, problems[0].What, "has acknowledged 40 only")
		assert.Empty(t, w.account(t, "fresh"))
	}
}

// The server makes no consumer of a name whose state ends too soon.
func TestAPositionThatIsCutShort(t *testing.T) {
	t.Parallel()
	w := newWreck(t, 14, 10)
	path := filepath.Join(datadir.StreamDir(w.dir, w.names.events), "obs", consumerPrefix+"k", "o.dat")
	state := []byte{22, 2}
	for _, n := range []uint64{10, 10, 14, 14, 4} { // acknowledged, delivered, and how many are not acknowledged:
		state = binary.AppendUvarint(state, n)
	}
	state = binary.AppendVarint(state, time.Now().Unix())
	for n := range uint64(4) {
		state = binary.AppendVarint(binary.AppendUvarint(binary.AppendUvarint(state, n+1), n+1), 0)
	}
	state = binary.AppendUvarint(state, 0)
	for size := range len(state) + 1 {
		require.NoError(t, os.WriteFile(path, state[:size], 0o600))
		j := open(t, w.dir, w.cfg)
		next := relaytest.Events(1, relaytest.From(1000+size))
		j.push(t, next)
		got := readUntil(t, j, "k", next[0].ID)
		if size == 0 {
			for seq := uint64(11); seq <= 14; seq++ {
				assert.Equal(t, 1, got[w.holds[seq][0]], "record %d", seq)
			}
		} else {
			assert.Len(t, got, 1, "the mark says that it had the others, at %d of %d bytes", size, len(state))
		}
		j.shut(t)
	}
}

// Lost positions are never given out again: a sink has acknowledged them, and would never
// get the new records there.
func TestATornEndDoesNotReusePositions(t *testing.T) {
	t.Parallel()
	w := newWreck(t, 30, 30)
	w.dropIndex(t)
	paths := w.blocks(t)
	info, err := os.Stat(paths[len(paths)-1])
	require.NoError(t, err)
	require.NoError(t, os.Truncate(paths[len(paths)-1], info.Size()-25_000))
	j := open(t, w.dir, w.cfg)
	defer j.shut(t)
	late := relaytest.Events(1, relaytest.From(1_000_000))
	late[0].ID = "late"
	j.push(t, late)
	state, err := j.stream.Info(t.Context())
	require.NoError(t, err)
	assert.Equal(t, uint64(31), state.State.LastSeq)
	readUntil(t, j, "k", "late")
}

// A running server gives positions out again after it loses the end of its stream. Nothing
// is acknowledged at such a position.
func TestAPositionThatIsGivenOutTwiceIsRefused(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	j := open(t, dir, testConfig)
	failed := make(chan error, 2)
	j.commits.failed = func(err error) { failed <- err }
	for i := range 3 {
		j.push(t, relaytest.Events(1, relaytest.From(i)))
	}
	require.NoError(t, j.conn.JetStream.DeleteStream(t.Context(), j.names.events))
	require.NoError(t, j.makeStream(t.Context(), nil))
	for i := range 3 {
		err := j.Append(t.Context(), batchOf(relaytest.Events(1, relaytest.From(10+i))))
		require.ErrorIs(t, err, ErrUnavailable)
		require.ErrorContains(t, err, "position 1 again")
	}
	require.ErrorContains(t, <-failed, "position 1 again")
	j.shut(t)
	j = open(t, dir, testConfig)
	defer j.shut(t)
	j.push(t, relaytest.Events(1, relaytest.From(20)))
	u, err := j.stream.Info(t.Context())
	require.NoError(t, err)
	assert.Equal(t, uint64(4), u.State.LastSeq)
}

// The whole newest block is gone, and no append shows it.
func TestALostEndIsNamedAtOnce(t *testing.T) {
	t.Parallel()
	w := newWreck(t, 30, 30)
	paths := w.blocks(t)
	require.NoError(t, os.Truncate(paths[len(paths)-1], 0))
	w.dropIndex(t)
	j := open(t, w.dir, w.cfg)
	q, err := j.Losses.All(t.Context())
	require.NoError(t, err)
	require.Len(t, q, 1)
	assert.Equal(t, uint64(30), q[0].To)
	j.shut(t)
	assert.Zero(t, w.verify(t).Open())
}

// Damage under a running server stops neither the reader nor the records behind it.
func TestDamageWhileRunningIsSteppedOver(t *testing.T) {
	t.Parallel()
	w := newWreck(t, 60, 10)
	path := w.blocks(t)[8]
	b, err := blockfile.Read(w.names.events, path)
	require.NoError(t, err)
	frame := b.Frames(0)[1]
	j := open(t, w.dir, w.cfg)
	defer j.shut(t)
	flip(t, path, frame.Offset+frame.Size/2, 3) // the server has not read it yet
	late := relaytest.Events(1, relaytest.From(1_000_000))
	late[0].ID = "late"
	j.push(t, late)
	got := readUntil(t, j, "k", "late")
	assert.Equal(t, (60-10-1)*3+1, len(got))
	q, err := j.Losses.All(t.Context())
	require.NoError(t, err)
	require.Len(t, q, 1)
	assert.Equal(t, frame.Seq, q[0].From)
	assert.Equal(t, frame.Seq, q[0].To)
	readUntil(t, j, "fresh", "late")
	q, err = j.Losses.All(t.Context())
	require.NoError(t, err)
	assert.Len(t, q, 1, "named once, not once a sink")
}
