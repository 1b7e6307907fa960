package blockfile

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/internal/datadir/natsserver"
)

// testFrame makes a message frame.
func (b *Block) testFrame(seq uint64, subject string, data []byte) []byte {
	out := make([]byte, natsserver.FrameHeader, natsserver.FrameMin+len(subject)+len(data))
	binary.LittleEndian.PutUint32(out, uint32(cap(out)))
	binary.LittleEndian.PutUint64(out[4:], seq)
	binary.LittleEndian.PutUint64(out[12:], uint64(time.Unix(1, 0).UnixNano()))
	binary.LittleEndian.PutUint16(out[20:], uint16(len(subject)))
	out = append(append(append(out, subject...), data...), make([]byte, natsserver.FrameChecksum)...)
	b.sign(out)
	return out
}

func testBlock(n int, size int) *Block {
	b := New("S", "1.blk", 1, nil)
	random := rand.NewChaCha8([32]byte{1})
	for i := range n {
		data := make([]byte, size)
		_, _ = random.Read(data)
		b.Bytes = append(b.Bytes, b.testFrame(uint64(i+1), "s", data)...)
	}
	return b
}

// For any change to a block, the frames add up to it, sequences grow, and each message
// read is one of those written.
func FuzzFrames(f *testing.F) {
	whole := testBlock(5, 50)
	f.Add(whole.Bytes)
	f.Add(whole.Bytes[:200])
	f.Add(append(bytes.Clone(whole.Bytes[:100]), whole.Bytes[162:]...))
	f.Add(append(bytes.Clone(whole.Bytes), New("S", "", 1, nil).TombstoneFrame(9, time.Now())...))
	f.Fuzz(func(t *testing.T, data []byte) {
		b := New("S", "1.blk", 1, data)
		at := 0
		for _, frame := range b.Frames(0) {
			require.Equal(t, at, frame.Offset)
			require.Positive(t, frame.Size)
			at += frame.Size
		}
		require.Len(t, data, at)
	})
}

func TestFramesGoOnBehindDamage(t *testing.T) {
	t.Parallel()
	const size = 81
	for at := range size {
		if at == 20 || at == 21 {
			continue // no checksum of the server's covers the subject's length; the record has its own
		}
		b := testBlock(5, 50)
		b.Bytes[2*size+at] ^= 0x10
		frames := b.Frames(0)
		require.Len(t, frames, 5, "byte %d", at)
		for i, f := range frames {
			if i == 2 {
				assert.Equal(t, Damaged, f.Kind, "byte %d", at)
				continue
			}
			assert.Equal(t, uint64(i+1), f.Seq)
			assert.Equal(t, Message, f.Kind)
		}
	}
	b := testBlock(5, 50)
	other := New("S", "2.blk", 2, b.Bytes)
	require.Len(t, other.Frames(0), 1, "a block of another number has other checksums")
}

// Checking a block frame by frame gives the same verdict as reading it whole.
func TestCheck(t *testing.T) {
	t.Parallel()
	const size = 81
	path := filepath.Join(t.TempDir(), "1.blk")
	var c Checker
	check := func(data []byte) Checked {
		require.NoError(t, os.WriteFile(path, data, 0o600))
		found, err := c.Check("S", path)
		require.NoError(t, err)
		return found
	}
	b := testBlock(5, 50)
	want, _ := Summarise(1, b.Frames(0), func(uint64) bool { return false })
	assert.Equal(t, Checked{want, true, true}, check(b.Bytes))
	for at := range b.Bytes {
		assert.Equal(t, at%size == 0, check(b.Bytes[:at]).Sound, "%d bytes", at)
		if at%size == 20 || at%size == 21 {
			continue // no checksum of the server's covers the subject's length
		}
		b.Bytes[at] ^= 0x10
		assert.False(t, check(b.Bytes).Sound, "byte %d", at)
		b.Bytes[at] ^= 0x10
	}
	_, err := c.Check("S", filepath.Join(filepath.Dir(path), "2.blk"))
	require.ErrorIs(t, err, os.ErrNotExist)
	require.NoError(t, os.WriteFile(path, []byte("cmp"), 0o600))
	_, err = c.Check("S", path)
	require.ErrorIs(t, err, ErrForm)
}

func TestListIsInOrder(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "msgs"), 0o700))
	for _, name := range []string{"10.blk", "9.blk", "1.blk", "x.blk", "2.blk.tmp", "index.db"} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, "msgs", name), nil, 0o600))
	}
	paths, err := List(dir)
	require.NoError(t, err)
	var names []string
	for _, p := range paths {
		names = append(names, filepath.Base(p))
	}
	assert.Equal(t, []string{"1.blk", "9.blk", "10.blk"}, names)
	x, err := ReadIndex("S", dir)
	require.NoError(t, err)
	assert.Equal(t, Index{Damaged: true}, x, "an empty index")
	_, err = Read("S", filepath.Join(dir, "msgs", "x.blk"))
	require.Error(t, err)
}

func BenchmarkFrames(b *testing.B) {
	for name, size := range map[string]int{"300B": 300, "100KB": 100_000} {
		b.Run(name, func(b *testing.B) {
			block := testBlock(8<<20/size, size)
			b.SetBytes(int64(len(block.Bytes)))
			for b.Loop() {
				block.Frames(0)
			}
		})
	}
}
