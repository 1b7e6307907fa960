package natsserver_test

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/minio/highwayhash"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/auditrelay/auditrelay/internal/datadir/natsserver"
	"github.com/auditrelay/auditrelay/internal/testbed/natstest"
	"github.com/auditrelay/auditrelay/internal/testbed/waiting"
)

func TestTheVersionIsTheLinkedOne(t *testing.T) {
	t.Parallel()
	assert.Equal(t, natsserver.Version, server.VERSION,
		"the linked nats-server is another: see whether the tests of this package are green, read its filestore.go, then set Version")
}

// written returns the folder of a stream S with the messages m1 to m3, the first with a
// header, and a consumer C at the second.
func written(t *testing.T, change func(js jetstream.JetStream)) string {
	t.Helper()
	dir := t.TempDir()
	js, stop := natstest.Serve(t, dir, natstest.SyncAlways)
	stream, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "S", Subjects: []string{"s.>"}})
	require.NoError(t, err)
	_, err = js.PublishMsg(t.Context(), &nats.Msg{Subject: "s.a", Header: nats.Header{"K": {"V"}}, Data: []byte("m1")})
	require.NoError(t, err)
	for _, data := range []string{"m2", "m3"} {
		_, err = js.Publish(t.Context(), "s.b", []byte(data))
		require.NoError(t, err)
	}
	consumer, err := stream.CreateConsumer(t.Context(), jetstream.ConsumerConfig{Durable: "C", AckPolicy: jetstream.AckAllPolicy})
	require.NoError(t, err)
	for range 2 {
		msg, err := consumer.Next()
		require.NoError(t, err)
		require.NoError(t, msg.DoubleAck(t.Context()))
	}
	if change != nil {
		change(js)
	}
	stop()
	return filepath.Join(natsserver.StreamsDir(dir), "S")
}

func read(t *testing.T, elements ...string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(elements...))
	require.NoError(t, err, "the server keeps this file elsewhere")
	return data
}

// frame cuts the first frame off a block, and checks its checksum.
func frame(t *testing.T, block []byte, number uint32) (head, body, rest []byte) {
	t.Helper()
	size := int(binary.LittleEndian.Uint32(block) &^ natsserver.HeadersBit)
	require.LessOrEqual(t, size, len(block))
	require.GreaterOrEqual(t, size, natsserver.FrameMin)
	key := natsserver.BlockKey("S", number)
	sum, err := highwayhash.New64(key[:])
	require.NoError(t, err)
	head, body, rest = block[:natsserver.FrameHeader], block[natsserver.FrameHeader:size-natsserver.FrameChecksum], block[size:]
	_, _ = sum.Write(head[4:20])
	if binary.LittleEndian.Uint32(block)&natsserver.HeadersBit == 0 {
		_, _ = sum.Write(body)
	} else { // all except the length of the headers
		subject := int(binary.LittleEndian.Uint16(head[20:]))
		_, _ = sum.Write(body[:subject])
		_, _ = sum.Write(body[subject+4:])
	}
	assert.Equal(t, binary.LittleEndian.Uint64(block[size-natsserver.FrameChecksum:]), sum.Sum64(), "another checksum")
	return head, body, rest
}

func TestFrames(t *testing.T) {
	t.Parallel()
	before := time.Now()
	block := read(t, written(t, nil), natsserver.MessagesDir, "1"+natsserver.BlockSuffix)
	head, body, rest := frame(t, block, 1)
	assert.NotZero(t, binary.LittleEndian.Uint32(head)&natsserver.HeadersBit, "the first message has headers")
	assert.EqualValues(t, 1, binary.LittleEndian.Uint64(head[4:]))
	assert.WithinRange(t, time.Unix(0, int64(binary.LittleEndian.Uint64(head[12:]))), before.Add(-time.Hour), before.Add(time.Hour))
	assert.EqualValues(t, 3, binary.LittleEndian.Uint16(head[20:]))
	headers := int(binary.LittleEndian.Uint32(body[3:]))
	assert.Equal(t, "s.a", string(body[:3]))
	assert.Equal(t, "NATS/1.0\r\nK: V\r\n\r\n", string(body[7:7+headers]))
	assert.Equal(t, "m1", string(body[7+headers:]))
	head, body, rest = frame(t, rest, 1)
	assert.Zero(t, binary.LittleEndian.Uint32(head)&natsserver.HeadersBit)
	assert.Equal(t, "s.bm2", string(body))
	_, _, rest = frame(t, rest, 1)
	assert.Empty(t, rest)
}

func TestDeletedMessages(t *testing.T) {
	t.Parallel()
	folder := written(t, func(js jetstream.JetStream) {
		stream, err := js.Stream(t.Context(), "S")
		require.NoError(t, err)
		require.NoError(t, stream.DeleteMsg(t.Context(), 2))
		require.NoError(t, stream.SecureDeleteMsg(t.Context(), 1))
	})
	block := read(t, folder, natsserver.MessagesDir, "1"+natsserver.BlockSuffix)
	var kinds []string
	for len(block) > 0 {
		head, _, rest := frame(t, block, 1)
		seq := binary.LittleEndian.Uint64(head[4:])
		switch {
		case seq&natsserver.TombstoneBit != 0:
			kinds = append(kinds, "tombstone of "+strconv.FormatUint(seq&^natsserver.TombstoneBit, 10))
		case seq&natsserver.ErasedBit != 0:
			kinds = append(kinds, "erased "+strconv.FormatUint(seq&^natsserver.ErasedBit, 10))
		default:
			kinds = append(kinds, strconv.FormatUint(seq, 10))
		}
		block = rest
	}
	assert.Contains(t, kinds, "tombstone of 2")
	assert.Contains(t, strings.Join(kinds, ","), "erased")
}

func uvarints(data []byte, n int) (all []uint64) {
	for range n {
		v, size := binary.Uvarint(data)
		all, data = append(all, v), data[size:]
	}
	return all
}

func TestThePosition(t *testing.T) {
	t.Parallel()
	state := read(t, written(t, nil), natsserver.ConsumersDir, "C", natsserver.PositionFile)
	assert.EqualValues(t, []byte{natsserver.PositionMagic, natsserver.PositionVersion}, state[:2])
	assert.Equal(t, []uint64{2, 2, 2, 2, 0}, uvarints(state[2:], 5), "acknowledged and delivered, each as delivery and sequence; pending")
}

func TestDescriptions(t *testing.T) {
	t.Parallel()
	folder := written(t, nil)
	for name, dir := range map[string]string{"S": folder, "S/C": filepath.Join(folder, natsserver.ConsumersDir, "C")} {
		key := natsserver.Key(name)
		sum := highwayhash.Sum64(read(t, dir, natsserver.Description), key[:])
		assert.Equal(t, hex.EncodeToString(binary.LittleEndian.AppendUint64(nil, sum)), string(read(t, dir, natsserver.DescriptionSum)), name)
	}
}

// The relay never asks for these forms, and must recognise them.
func TestCompressedAndEncrypted(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	js, stop := natstest.Serve(t, dir, natstest.SyncAlways)
	_, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "S", Subjects: []string{"s"}, Compression: jetstream.S2Compression, MaxBytes: 100_000})
	require.NoError(t, err)
	for range 12 { // some blocks of 32 KB
		_, err := js.Publish(t.Context(), "s", bytes.Repeat([]byte("x"), 8000))
		require.NoError(t, err)
	}
	stop()
	block := read(t, natsserver.StreamsDir(dir), "S", natsserver.MessagesDir, "1"+natsserver.BlockSuffix)
	assert.True(t, bytes.HasPrefix(block, []byte(natsserver.CompressedPrefix)))

	dir = t.TempDir()
	js, _ = natstest.Serve(t, dir, func(o *server.Options) { o.JetStreamKey, o.JetStreamCipher = "key", server.AES })
	_, err = js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "S", Subjects: []string{"s"}})
	require.NoError(t, err)
	_, err = js.Publish(t.Context(), "s", nil)
	require.NoError(t, err)
	read(t, natsserver.StreamsDir(dir), "S", natsserver.DescriptionKey)
	read(t, natsserver.StreamsDir(dir), "S", natsserver.MessagesDir, "1"+natsserver.KeySuffix)
}

func TestTheErrorOfAFullStream(t *testing.T) {
	t.Parallel()
	js, _ := natstest.Serve(t, t.TempDir())
	_, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "S", Subjects: []string{"s"}, MaxBytes: 100, Discard: jetstream.DiscardNew})
	require.NoError(t, err)
	_, err = js.Publish(t.Context(), "s", make([]byte, 200))
	var api *jetstream.APIError
	require.ErrorAs(t, err, &api)
	assert.Contains(t, api.Description, natsserver.FullError)
}

func TestTheErrorOfAFailedWrite(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	srv := natstest.Run(t, dir, natstest.SyncAlways)
	js := natstest.JetStream(t, srv)
	_, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "S", Subjects: []string{"s"}})
	require.NoError(t, err)
	_, err = js.Publish(t.Context(), "s", nil)
	require.NoError(t, err)
	breakWrites(t, dir)
	_, err = js.PublishAsync("s", nil) // the server gives no answer
	require.NoError(t, err)
	waiting.Until(t, func() bool {
		for _, problem := range srv.Healthz(&server.HealthzOptions{Details: true}).Errors {
			if strings.Contains(problem.Error, natsserver.WriteError) {
				return true
			}
		}
		return false
	})
}

// breakWrites makes writes to the open blocks under dir fail, as on a full disk.
func breakWrites(t *testing.T, dir string) {
	t.Helper()
	full, err := os.OpenFile("/dev/full", os.O_RDWR, 0)
	require.NoError(t, err)
	defer func() { require.NoError(t, full.Close()) }()
	fds, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	broken := 0
	for _, fd := range fds {
		target, err := os.Readlink("/proc/self/fd/" + fd.Name())
		if err == nil && strings.HasPrefix(target, dir) && strings.HasSuffix(target, natsserver.BlockSuffix) {
			n, err := strconv.Atoi(fd.Name())
			require.NoError(t, err)
			require.NoError(t, unix.Dup3(int(full.Fd()), n, unix.O_CLOEXEC))
			broken++
		}
	}
	require.Positive(t, broken, "no block is open")
}

func TestTheLongestFrame(t *testing.T) {
	t.Parallel()
	for size, kept := range map[int]bool{natsserver.FrameMax: true, natsserver.FrameMax + 1: false} {
		folder := written(t, nil)
		path := filepath.Join(folder, natsserver.MessagesDir, "1"+natsserver.BlockSuffix)
		long := make([]byte, size)
		binary.LittleEndian.PutUint32(long, uint32(size))
		binary.LittleEndian.PutUint64(long[4:], 4)
		binary.LittleEndian.PutUint64(long[12:], uint64(time.Now().UnixNano()))
		binary.LittleEndian.PutUint16(long[20:], 3)
		copy(long[natsserver.FrameHeader:], "s.b")
		key := natsserver.BlockKey("S", 1)
		sum, err := highwayhash.New64(key[:])
		require.NoError(t, err)
		_, _ = sum.Write(long[4:20])
		_, _ = sum.Write(long[natsserver.FrameHeader : size-natsserver.FrameChecksum])
		sum.Sum(long[:size-natsserver.FrameChecksum])
		require.NoError(t, os.WriteFile(path, append(read(t, path), long...), 0o600))
		require.NoError(t, os.Remove(filepath.Join(folder, natsserver.MessagesDir, natsserver.IndexFile)))

		js, stop := natstest.Serve(t, filepath.Join(folder, "..", "..", "..", ".."))
		stream, err := js.Stream(t.Context(), "S")
		require.NoError(t, err)
		assert.Equal(t, kept, stream.CachedInfo().State.LastSeq == 4, "%d bytes", size)
		stop()
	}
}
