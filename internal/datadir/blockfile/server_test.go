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

// TestWhatTheServerDoesToAnOldRottenBlock shows how nats-server 2.15.2 treats an old
// block with a flipped bit, if nobody mends it first. The blocks a start leaves unread
// rest on it:
//
//   - The server goes by index.db if it names the newest block's last checksum. Then it
//     reads no block at the start, and each block at the first request for its records.
//   - Without index.db, or with one older than the newest record (as after nearly every
//     kill), it reads all blocks at the start, and cuts each off before the first record
//     with a bad checksum.
//   - With any index, it reads the records within the stream's duplicate window at the
//     start.
//   - It checks a block read with an index record by record: a flipped bit in a message
//     costs that record. Because of a bit in a record's length or sequence, it cuts the
//     block off there, on disk too.
//
// So a start may leave an old block unread only with an up-to-date index.db, and the
// block must be verified before any request for its records.
func TestWhatTheServerDoesToAnOldRottenBlock(t *testing.T) {
	t.Parallel()
	const length, sequence, body = 1, 5, 1000 // bytes of a record
	for _, c := range []struct {
		index   string
		window  time.Duration
		byte    int
		atStart bool // the server cuts the block off before any read of it
		later   bool // it does so at the first read
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
