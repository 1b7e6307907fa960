package record_test

import (
	"crypto/sha256"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/auditrelay/auditrelay/internal/journal/record"
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
			b.Add(&record.Entry{ID: fmt.Append(nil, stream, i), Type: []byte(kind), Time: int64(i), Body: make([]byte, 15_000)})
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
		large  bool
	}{
		"pushes":            {[]*record.Batch{pushOf("event_log.LOGIN", 9, late), pushOf("event_log", 1, early)}, true, false},
		"the relay's own":   {[]*record.Batch{pushOf("events.span", 1, early)}, false, false},
		"more than fits":    {[]*record.Batch{pushOf("event_log", 150, early)}, true, true},
		"a push among them": {[]*record.Batch{pushOf("events.span", 1, early), pushOf("event_log.X", 1, late)}, true, false},
	} {
		var raw []byte
		events := 0
		for _, b := range c.pushes {
			raw = append(raw, b.Bytes()...)
			events += b.Len()
		}
		rec := record.Append(nil, raw, events)
		content := record.Content(raw, events)
		require.Equal(t, c.large, content.Large, name)
		made := record.DigestMade(rec, content)
		read, err := record.DigestOf(rec)
		require.NoError(t, err, name)
		assert.Equal(t, read, made, name)
		assert.Equal(t, c.pushed, read.Pushed, name)
		assert.Equal(t, early, read.First, name)
		again, err := record.DigestOf(record.Append(nil, raw, events))
		require.NoError(t, err, name)
		assert.NotEqual(t, read.Root, again.Root, "%s: each record has a salt of its own", name)
	}
}

// A receiver rebuilds the leaf with nothing of ours.
func TestTheLeafOfAnEvent(t *testing.T) {
	t.Parallel()
	e := relay.Event{
		ID: "id", Source: "/projects/p/environments/e", Type: "event_log", Project: "p", Environment: "e", Body: []byte("{}"),
		Time: time.Date(2026, 11, 22, 8, 0, 0, 120_000_000, time.UTC), Received: time.Date(2026, 11, 22, 9, 0, 1, 0, time.FixedZone("", 3600)),
	}
	origin := sha256.Sum256([]byte("26:/projects/p/environments/e,1:p,1:e,20:2026-11-22T08:00:01Z,"))
	hash := sha256.Sum256(slices.Concat(origin[:], []byte("2:id,9:event_log,0:,23:2026-11-22T08:00:00.12Z,{}")))
	assert.EqualValues(t, hash, record.HashOf(&e))
	var b record.Batch
	b.AddEvent(&e)
	rec := record.Append(nil, b.Bytes(), 1)
	d, err := record.DigestOf(rec)
	require.NoError(t, err)
	salt := record.SaltOf(rec).Event(0)
	assert.Equal(t, tlog.Hash(sha256.Sum256(slices.Concat([]byte{0}, salt[:], hash[:]))), d.Root)
	assert.NotContains(t, string(rec), string(salt[:]), "an event's salt is not the record's")
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
