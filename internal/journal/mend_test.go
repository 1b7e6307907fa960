package journal

import (
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/internal/datadir"
	"github.com/auditrelay/auditrelay/internal/datadir/blockfile"
	"github.com/auditrelay/auditrelay/relay/relaytest"
)

const (
	otherStream = "TEST_AUDIT"
	otherBucket = "TEST_credentials"
)

// newNeighbours makes a data directory with more than a journal: an append-only stream of
// 30 messages with a consumer, and a bucket of three keys.
func newNeighbours(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	j := open(t, dir, testConfig)
	j.push(t, relaytest.Events(3))
	j.source(t, "one").Close()
	j.source(t, "two").Close()
	js := j.conn.JetStream
	stream := makeNeighbour(t, js)
	for i := range 30 {
		_, err := js.Publish(t.Context(), fmt.Sprintf("TEST.audit.%d", i%3), fmt.Appendf(nil, "entry %d", i))
		require.NoError(t, err)
	}
	consumer, err := stream.CreateConsumer(t.Context(), jetstream.ConsumerConfig{Durable: "follower", AckPolicy: jetstream.AckExplicitPolicy})
	require.NoError(t, err)
	msgs, err := consumer.Fetch(5)
	require.NoError(t, err)
	for msg := range msgs.Messages() {
		require.NoError(t, msg.DoubleAck(t.Context()))
	}
	kv, err := js.CreateKeyValue(t.Context(), jetstream.KeyValueConfig{Bucket: otherBucket})
	require.NoError(t, err)
	for i := range 9 {
		_, err := kv.PutString(t.Context(), fmt.Sprintf("key%d", i%3), fmt.Sprintf("value %d", i))
		require.NoError(t, err)
	}
	j.shut(t)
	return dir
}

// makeNeighbour makes the append-only stream, where it is not there, as its room does.
func makeNeighbour(t *testing.T, js jetstream.JetStream) jetstream.Stream {
	t.Helper()
	stream, err := js.CreateOrUpdateStream(t.Context(), jetstream.StreamConfig{
		Name: otherStream, Subjects: []string{"TEST.audit.>"}, DenyDelete: true, DenyPurge: true,
	})
	require.NoError(t, err)
	return stream
}

// filesOf lists the files below the streams' folders, relative to the first of them.
func filesOf(t *testing.T, dir string, streams ...string) (files []string) {
	t.Helper()
	root := datadir.StreamDir(dir, "")
	for _, stream := range streams {
		require.NoError(t, filepath.WalkDir(filepath.Join(root, stream), func(path string, d fs.DirEntry, err error) error {
			if err == nil && !d.IsDir() {
				rel, _ := filepath.Rel(root, path)
				files = append(files, rel)
			}
			return err
		}))
	}
	require.NotEmpty(t, files)
	return files
}

func spoil(t *testing.T, path, how string, rng *rand.Rand) {
	t.Helper()
	info, err := os.Stat(path)
	require.NoError(t, err)
	switch {
	case how == "deleted":
		require.NoError(t, os.Remove(path))
	case info.Size() == 0:
	case how == "flipped":
		flip(t, path, rng.IntN(int(info.Size())), rng.UintN(8))
	default:
		require.NoError(t, os.Truncate(path, rng.Int64N(info.Size())))
	}
}

// Damage to any file of any stream costs no more than the damaged part, and the start names
// it. A second start names nothing further.
func TestEveryStreamIsMended(t *testing.T) {
	t.Parallel()
	sound := newNeighbours(t)
	for _, file := range filesOf(t, sound, otherStream, "KV_"+otherBucket) {
		for how, seeds := range map[string]uint64{"flipped": 3, "cut": 3, "deleted": 1} {
			for seed := range seeds {
				t.Run(fmt.Sprintf("%s/%s/%d", file, how, seed), func(t *testing.T) {
					t.Parallel()
					dir := t.TempDir()
					require.NoError(t, os.CopyFS(dir, os.DirFS(sound)))
					path := filepath.Join(datadir.StreamDir(dir, ""), file)
					spoil(t, path, how, rand.New(rand.NewPCG(seed, 7)))
					found := (&wreck{dir: dir, cfg: testConfig}).verify(t)
					left, named := neighbours(t, dir)
					if how == "flipped" {
						assert.GreaterOrEqual(t, left, 29, "one bit costs more than one record")
					}
					if left < 30 {
						assert.Positive(t, found.Open(), "verify says sound, and %d of 30 are left", left)
						assert.NotEmpty(t, named)
					}
					_, again := neighbours(t, dir)
					assert.Equal(t, named, again, "a second start names the damage again")
					assert.Zero(t, (&wreck{dir: dir, cfg: testConfig}).verify(t).Open())
				})
			}
		}
	}
}

// neighbours starts the journal, and counts the readable messages of the append-only
// stream. The next message must come behind all of them.
func neighbours(t *testing.T, dir string) (left int, named []datadir.Quarantined) {
	t.Helper()
	j := open(t, dir, testConfig)
	defer j.shut(t)
	j.push(t, relaytest.Events(1))
	js := j.conn.JetStream
	stream := makeNeighbour(t, js)
	for seq := uint64(1); seq <= 30; seq++ {
		if msg, err := stream.GetMsg(t.Context(), seq); err == nil {
			assert.Equal(t, fmt.Sprintf("entry %d", seq-1), string(msg.Data))
			left++
		}
	}
	for i := range 3 {
		if left < 29 {
			break
		}
		msg, err := stream.GetLastMsgForSubject(t.Context(), fmt.Sprintf("TEST.audit.%d", i))
		require.NoError(t, err, "the newest sound message of a subject is found")
		assert.GreaterOrEqual(t, msg.Sequence, uint64(24))
	}
	// A key whose newest value is lost may show an older one; its room sees to that.
	_, err := js.CreateOrUpdateKeyValue(t.Context(), jetstream.KeyValueConfig{Bucket: otherBucket})
	require.NoError(t, err)
	named, err = j.Losses.All(t.Context())
	require.NoError(t, err)
	return left, named
}

// After an orderly stop, the server goes by its index. A mended stream must not show a
// lost message there: whoever asks for a subject's newest message gets the newest sound
// one, or hears that there is none.
func TestTheIndexForgetsALostMessage(t *testing.T) {
	t.Parallel()
	dir := newNeighbours(t)
	block := filepath.Join(datadir.StreamDir(dir, otherStream), "msgs", "1.blk")
	b, err := blockfile.Read(otherStream, block)
	require.NoError(t, err)
	flip(t, block, b.Frames(0)[28].Offset+4, 0) // the newest of its subject, and not of the stream
	flip(t, registerOf(dir), 4, 0)              // the only one of its subject
	j := open(t, dir, testConfig)
	defer j.shut(t)
	msg, err := makeNeighbour(t, j.conn.JetStream).GetLastMsgForSubject(t.Context(), "TEST.audit.1")
	require.NoError(t, err)
	assert.Equal(t, uint64(26), msg.Sequence)
}

// The server's checksum does not cover the length of a subject: a flipped bit there makes
// the sink "on" or "onek" of "one". The register reads "one" all the same.
func TestASubjectsLengthIsFlippedInTheRegister(t *testing.T) {
	t.Parallel()
	sound := newNeighbours(t)
	for _, bit := range []uint{0, 1, 2} {
		for _, index := range []bool{true, false} {
			t.Run(fmt.Sprint(bit, index), func(t *testing.T) {
				t.Parallel()
				dir := t.TempDir()
				require.NoError(t, os.CopyFS(dir, os.DirFS(sound)))
				flip(t, registerOf(dir), 20, bit)
				if !index { // as after a kill
					require.NoError(t, os.Remove(filepath.Join(filepath.Dir(registerOf(dir)), "index.db")))
				}
				j := open(t, dir, testConfig)
				defer j.shut(t)
				all, err := j.Positions.List(t.Context())
				require.NoError(t, err)
				require.Len(t, all, 2)
				assert.Equal(t, []string{"one", "two"}, []string{all[0].Sink, all[1].Sink})
			})
		}
	}
}

func registerOf(dir string) string {
	return filepath.Join(datadir.StreamDir(dir, "TEST_SINKS"), "msgs", "1.blk")
}

// A stream whose folder cannot be read is moved aside; the journal starts.
func TestAStreamThatCannotBeReadIsMovedAside(t *testing.T) {
	t.Parallel()
	dir := newNeighbours(t)
	msgs := filepath.Join(datadir.StreamDir(dir, otherStream), "msgs")
	require.NoError(t, os.RemoveAll(msgs))
	require.NoError(t, os.WriteFile(msgs, []byte("no folder"), 0o600))
	assert.Positive(t, (&wreck{dir: dir, cfg: testConfig}).verify(t).Open())
	for range 2 {
		left, named := neighbours(t, dir)
		assert.Zero(t, left)
		require.Len(t, named, 1)
		assert.Contains(t, named[0].Reason, "folder")
		moved, err := os.Stat(filepath.Join(dir, named[0].Kept, "meta.inf"))
		require.NoError(t, err)
		assert.True(t, moved.Mode().IsRegular())
	}
}

// Records behind a noted end are known to be gone, and their positions are not
// given out again.
func TestANotedEndIsKept(t *testing.T) {
	t.Parallel()
	dir := newNeighbours(t)
	j := open(t, dir, testConfig)
	j.conn.NoteEnd(otherStream, 30)
	j.shut(t)
	paths, err := blockfile.List(datadir.StreamDir(dir, otherStream))
	require.NoError(t, err)
	info, err := os.Stat(paths[0])
	require.NoError(t, err)
	require.NoError(t, os.Truncate(paths[0], info.Size()-10))
	require.NoError(t, os.Remove(filepath.Join(datadir.StreamDir(dir, otherStream), "msgs", "index.db")))
	w := &wreck{dir: dir, cfg: testConfig}
	assert.Positive(t, w.verify(t).Open())
	j = open(t, dir, testConfig)
	ack, err := j.conn.JetStream.Publish(t.Context(), "TEST.audit.0", []byte("late"))
	require.NoError(t, err)
	assert.Equal(t, uint64(31), ack.Sequence)
	j.shut(t)
	assert.Zero(t, w.verify(t).Open())
	require.NoError(t, os.RemoveAll(datadir.StreamDir(dir, otherStream)))
	problems := w.verify(t).Problems
	require.NotEmpty(t, problems)
	assert.True(t, strings.Contains(problems[len(problems)-1].What, "whole stream is gone"), "%v", problems)
}
