package natsserver_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/minio/highwayhash"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/internal/datadir/natsserver"
	"github.com/auditrelay/auditrelay/internal/testbed/natstest"
)

// indexOf makes the index of a stream S from its blocks. They hold messages only.
func indexOf(t *testing.T, folder string) *natsserver.Index {
	t.Helper()
	x := &natsserver.Index{}
	for n := uint32(1); ; n++ {
		block, err := os.ReadFile(filepath.Join(folder, natsserver.MessagesDir, fmt.Sprint(n, natsserver.BlockSuffix)))
		if err != nil {
			break
		}
		b := natsserver.IndexBlock{Index: n, Bytes: uint64(len(block))}
		for rest := block; len(rest) > 0; {
			var head, body []byte
			head, body, rest = frame(t, rest, n)
			note(x, &b, head, body)
		}
		x.Bytes, x.Blocks, x.Checksum = x.Bytes+b.Bytes, append(x.Blocks, b), [8]byte(block[len(block)-8:])
	}
	require.NotEmpty(t, x.Blocks)
	x.First, x.FirstTime = x.Blocks[0].First, x.Blocks[0].FirstTime
	x.Last, x.LastTime = x.Blocks[len(x.Blocks)-1].Last, x.Blocks[len(x.Blocks)-1].LastTime
	return x
}

// note adds a message to its block and to the whole.
func note(x *natsserver.Index, b *natsserver.IndexBlock, head, body []byte) {
	seq, at := binary.LittleEndian.Uint64(head[4:]), int64(binary.LittleEndian.Uint64(head[12:]))
	switch {
	case b.First == 0:
		b.First, b.FirstTime = seq, at
	case seq > b.Last+1:
		b.Missing = append(b.Missing, natsserver.Run{From: b.Last + 1, To: seq - 1})
	}
	b.Last, b.LastTime = seq, at
	x.Messages++
	subject := string(body[:binary.LittleEndian.Uint16(head[20:])])
	if n := len(x.Subjects); n == 0 || x.Subjects[n-1].Name != subject {
		x.Subjects = append(x.Subjects, natsserver.IndexSubject{Name: subject, FirstBlock: b.Index})
	}
	s := &x.Subjects[len(x.Subjects)-1]
	s.Messages++
	s.LastBlock = b.Index
}

// The index is the server's own, byte for byte, as it writes it at a shutdown.
func TestTheIndex(t *testing.T) {
	t.Parallel()
	folder := written(t, nil)
	index := read(t, folder, natsserver.MessagesDir, natsserver.IndexFile)
	assert.EqualValues(t, []byte{natsserver.IndexMagic, natsserver.IndexVersion}, index[:2])
	x := indexOf(t, folder)
	require.Len(t, x.Subjects, 2)
	if sorted := x.Encode("S"); !bytes.Equal(index, sorted) {
		slices.Reverse(x.Subjects) // the order is the server's own
		assert.Equal(t, index, x.Encode("S"))
	}
}

// So it is with several blocks and missing messages, after the server has read the blocks.
func TestTheIndexOfBlocksThatMissMessages(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	js, stop := natstest.Serve(t, dir)
	_, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "S", Subjects: []string{"s"}, MaxBytes: 100_000})
	require.NoError(t, err)
	for range 12 { // some blocks of 32 KB
		_, err := js.Publish(t.Context(), "s", bytes.Repeat([]byte("x"), 8000))
		require.NoError(t, err)
	}
	stop()
	folder := filepath.Join(natsserver.StreamsDir(dir), "S")
	path := filepath.Join(folder, natsserver.MessagesDir, "2"+natsserver.BlockSuffix)
	block := read(t, path)
	_, _, second := frame(t, block, 2)
	_, _, third := frame(t, second, 2)
	require.NotEmpty(t, third, "the block has a message behind the second")
	require.NoError(t, os.WriteFile(path, append(bytes.Clone(block[:len(block)-len(second)]), third...), 0o600))
	require.NoError(t, os.Remove(filepath.Join(folder, natsserver.MessagesDir, natsserver.IndexFile)))

	x := indexOf(t, folder)
	require.Greater(t, len(x.Blocks), 2)
	require.Len(t, x.Blocks[1].Missing, 1)
	_, stop = natstest.Serve(t, dir)
	stop()
	assert.Equal(t, read(t, folder, natsserver.MessagesDir, natsserver.IndexFile), x.Encode("S"))
}

// The server goes by an index of the versions that it reads, and by its blocks otherwise.
func TestTheVersionsOfTheIndex(t *testing.T) {
	t.Parallel()
	for version, read := range map[byte]bool{
		natsserver.IndexVersionLeast - 1: false, natsserver.IndexVersionLeast: true,
		natsserver.IndexVersion: true, natsserver.IndexVersion + 1: false,
	} {
		dir := t.TempDir()
		js, stop := natstest.Serve(t, dir)
		_, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "S", Subjects: []string{"s"}})
		require.NoError(t, err)
		for range 2 { // of a single message versions before 4 did not say the last block
			_, err = js.Publish(t.Context(), "s", nil)
			require.NoError(t, err)
		}
		stop()
		folder := filepath.Join(natsserver.StreamsDir(dir), "S")
		x := indexOf(t, folder)
		x.FirstTime -= int64(time.Hour) // what the index alone says
		x.Blocks[0].FirstTime = x.FirstTime
		text := x.Encode("S")
		text = text[:len(text)-8]
		if version < 2 { // without the counts of times to live and of schedules, before the newest block's number
			tail := len(text) - 8 - 1
			text = append(text[:tail-2], text[tail:]...)
		}
		text[1] = version
		key := natsserver.Key("S")
		text = binary.LittleEndian.AppendUint64(text, highwayhash.Sum64(text, key[:]))
		require.NoError(t, os.WriteFile(filepath.Join(folder, natsserver.MessagesDir, natsserver.IndexFile), text, 0o600))
		js, stop = natstest.Serve(t, dir)
		stream, err := js.Stream(t.Context(), "S")
		require.NoError(t, err)
		assert.Equal(t, read, stream.CachedInfo().State.FirstTime.Equal(time.Unix(0, x.FirstTime)), "version %d", version)
		stop()
	}
}
