package blockfile

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/internal/testbed/waiting"
)

// What nats-server 2.15.2 does to an old block with a flipped bit, where nobody
// mends the block first. What a start may leave unread rests on it:
//
//   - It goes by index.db where that names the newest block's last checksum. It then
//     reads no block at the start, and each block when a record of it is asked for.
//   - Without index.db, or with one that is older than the newest record (as after
//     nearly every kill), it reads all blocks at the start, and cuts each off before
//     the first record whose checksum fails.
//   - Whatever the index says, it reads the records that are younger than the
//     stream's duplicate window at the start.
//   - A block that it reads with an index is checked record by record: a flipped bit
//     in a message costs that record. A bit in a record's length or sequence has the
//     server cut the block off there, on disk too.
//
// So a start may leave an old block unread only with an index.db that is up to date,
// and must have the block verified before the server is asked for one of its records.
func TestWhatTheServerDoesToAnOldRottenBlock(t *testing.T) {
	t.Parallel()
	const length, sequence, body = 1, 5, 1000 // bytes of a record
	for _, c := range []struct {
		index   string
		window  time.Duration
		byte    int
		atStart bool // the block is cut off before anybody has read of it
		later   bool // it is once somebody has
	}{
		{"there", leastWindow, body, false, false},
		{"there", leastWindow, length, false, true},
		{"there", leastWindow, sequence, false, true},
		{"there", time.Hour, length, true, true},
		{"there", time.Hour, body, false, false},
		{"missing", leastWindow, body, true, true},
		{"missing", leastWindow, length, true, true},
		{"stale", leastWindow, body, true, true},
		{"stale", leastWindow, length, true, true},
	} {
		t.Run(fmt.Sprintf("index %s, window %v, byte %d", c.index, c.window, c.byte), func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			index := filepath.Join(streamDir(dir), "msgs", "index.db")
			serve(t, dir, c.window, func(js jetstream.JetStream, _ jetstream.Stream) { publish(t, js, 16) })
			stale, err := os.ReadFile(index)
			require.NoError(t, err)
			serve(t, dir, c.window, func(js jetstream.JetStream, _ jetstream.Stream) { publish(t, js, 2) })
			published := time.Now()
			switch c.index {
			case "missing":
				require.NoError(t, os.Remove(index))
			case "stale":
				require.NoError(t, os.WriteFile(index, stale, 0o600))
			}
			path, frames := rot(t, streamDir(dir), c.byte)
			size := fileSize(t, path)
			waiting.Until(t, func() bool { return time.Since(published) > 2*leastWindow })

			serve(t, dir, c.window, func(_ jetstream.JetStream, stream jetstream.Stream) {
				assert.Equal(t, c.atStart, fileSize(t, path) < size, "at the start")
				for i, f := range frames {
					_, err := stream.GetMsg(t.Context(), f.Seq)
					assert.Equal(t, i == 1 || c.later && i > 1, err != nil, "record %d of the block: %v", i, err)
				}
				assert.Equal(t, c.later, fileSize(t, path) < size, "later")
				_, err = stream.GetMsg(t.Context(), frames[len(frames)-1].Seq+1)
				require.NoError(t, err, "of the next block")
			})
		})
	}
}

// rot flips a bit of the second record of the second block.
func rot(t *testing.T, dir string, at int) (path string, frames []Frame) {
	t.Helper()
	paths, err := List(dir)
	require.NoError(t, err)
	require.Greater(t, len(paths), 2)
	b, err := Read("S", paths[1])
	require.NoError(t, err)
	frames = b.Frames(0)
	b.Bytes[frames[1].Offset+at] ^= 8
	require.NoError(t, os.WriteFile(paths[1], b.Bytes, 0o600))
	return paths[1], frames
}

func fileSize(t *testing.T, path string) int64 {
	t.Helper()
	info, err := os.Stat(path)
	require.NoError(t, err)
	return info.Size()
}
