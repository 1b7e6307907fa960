package record_test

import (
	"crypto/sha256"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/internal/record"
	"github.com/auditrelay/auditrelay/relay"
)

// pushOf is a push of n events to two streams, with more bytes than a segment takes.
func pushOf(kind string, n int, received time.Time) *record.Batch {
	var b record.Batch
	for _, stream := range []string{"a", "b"} {
		b.Begin(record.Group{
			Source: "/projects/p", Project: "p", ContentType: "text/plain", Received: received,
			Labels: []relay.Label{{Name: "stream", Value: stream}, {Name: "env", Value: "prod"}},
		})
		for i := range n {
			b.Add(&record.Entry{ID: fmt.Append(nil, stream, i), Type: []byte(kind), Time: int64(i), Body: make([]byte, 40_000)})
		}
	}
	return &b
}

func TestADigestInTheMakingIsThatOfTheRecord(t *testing.T) {
	t.Parallel()
	early := time.Date(2026, 11, 22, 8, 0, 0, 5, time.UTC)
	late := early.Add(time.Hour)
	for name, c := range map[string]struct {
		pushes []*record.Batch
		pushed bool
	}{
		"pushes":            {[]*record.Batch{pushOf("event_log.LOGIN", 9, late), pushOf("event_log", 1, early)}, true},
		"the relay's own":   {[]*record.Batch{pushOf("events.span", 1, early)}, false},
		"a push among them": {[]*record.Batch{pushOf("events.span", 1, early), pushOf("event_log.X", 1, late)}, true},
	} {
		var raw []byte
		var made record.Digest
		for _, b := range c.pushes {
			raw = append(raw, b.Bytes()...)
			for i := range b.Segments() {
				made.AddSegment(b.Segment(i))
			}
		}
		rec := record.Append(nil, raw, made.Events)
		made.SHA256 = sha256.Sum256(rec)
		read, err := record.DigestOf(rec)
		require.NoError(t, err, name)
		assert.Equal(t, read, made, name)
		assert.Equal(t, c.pushed, read.Pushed, name)
		assert.Equal(t, early, read.First, name)
	}
}

func TestADamagedRecordHasNoDigest(t *testing.T) {
	t.Parallel()
	b := pushOf("event_log", 1, time.Now())
	rec := record.Append(nil, b.Bytes(), b.Len())
	for i := range rec {
		rec[i] ^= 1
		_, err := record.DigestOf(rec)
		require.Error(t, err, "byte %d", i)
		rec[i] ^= 1
	}
}
