package main

import (
	"encoding/base64"
	"strconv"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/assert"
)

// guarded is the header of a message that is conditional on another subject.
func guarded(id, guard string, rev uint64) nats.Header {
	h := nats.Header{}
	h.Set(jetstream.MsgIDHeader, id)
	h.Set(jetstream.ExpectedLastSubjSeqHeader, strconv.FormatUint(rev, 10))
	if guard != "" {
		h.Set(headerGuard, guard)
	}
	return h
}

// A write under a replaced epoch counts for the relay that tries it, and what is stored under one
// is a trespass.
func TestRefusedWritesAreCounted(t *testing.T) {
	t.Parallel()
	f := &fence{stream: "T", newest: map[string]uint64{}, stored: map[string]bool{}, refused: map[string]refusal{}}
	const epoch, position = "T.key.cluster.epoch/sink/hook-a", "T.key.position.hook-a"
	beat := "T.b64.cluster." + base64.RawURLEncoding.EncodeToString([]byte("beat/r1.ab"))
	v := victim{member: "r1.ab", sinks: []string{"hook-a"}}
	other := victim{member: "r2.cd", sinks: []string{"hook-b"}, jobs: []string{"control"}}
	f.holds(epoch, guarded("1", "", 0), 10)
	f.holds(beat, guarded("2", "", 0), 11)
	f.passes(position, guarded("3", epoch, 10), nil)
	f.holds(position, guarded("3", epoch, 10), 12)
	f.holds(epoch, guarded("4", "", 10), 13) // another relay takes over
	f.holds(beat, guarded("5", "", 11), 14)  // and has declared it dead
	assert.Equal(t, attempts{}, f.attempts(v))
	f.passes(position, guarded("3", epoch, 10), nil) // again, for want of an answer
	f.passes(beat, guarded("6", "", 11), []byte("a tombstone of a third relay"))
	f.passes(epoch, guarded("7", "", 10), nil) // of a third relay, too
	assert.Equal(t, attempts{}, f.attempts(v))

	f.passes(position, guarded("8", epoch, 10), nil)
	f.passes(position, guarded("8", epoch, 10), nil) // at another server
	f.passes(beat, guarded("9", "", 11), []byte(`{"jobs":[]}`))
	f.passes("T.key.trimmed", guarded("10", "T.key.cluster.epoch/control", 0), nil)
	assert.Equal(t, attempts{beats: 1, positions: 1}, f.attempts(v))
	assert.Equal(t, attempts{}, f.attempts(other))
	moves, trespass := f.sum()
	assert.Equal(t, 1, moves)
	assert.Empty(t, trespass)

	f.holds(position, guarded("11", epoch, 13), 15)
	f.holds(position, guarded("12", epoch, 10), 16)
	moves, trespass = f.sum()
	assert.Equal(t, 3, moves)
	assert.Equal(t, []string{"position/hook-a was written at 16 under the epoch of 10, and that of cluster/epoch/sink/hook-a is 13"}, trespass)
	f.begin()
	assert.Equal(t, attempts{}, f.attempts(v))
}
