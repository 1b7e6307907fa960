package record

import (
	"encoding/binary"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/relay"
	"github.com/auditrelay/auditrelay/relay/relaytest"
)

func batchOf(events []relay.Event) *Batch {
	var b Batch
	for i := range events {
		b.AddEvent(&events[i])
	}
	return &b
}

// decodeAll appends all events of a record.
func decodeAll(dst []relay.Event, rec []byte) ([]relay.Event, error) {
	r, err := Open(rec)
	if err != nil {
		return dst, err
	}
	dst, _, err = r.Next(dst, math.MaxInt)
	return dst, err
}

// noisy makes n events with incompressible bodies.
func noisy(rng *rand.Rand, n, size int) []relay.Event {
	events := make([]relay.Event, n)
	for i := range events {
		body := make([]byte, size)
		for k := range body {
			body[k] = byte(rng.Uint32())
		}
		events[i] = relay.Event{ID: strconv.Itoa(i), Type: "t", Time: time.Unix(int64(i), 0), Body: body}
	}
	return events
}

func FuzzDecodeRecord(f *testing.F) {
	events := relaytest.Events(3)
	rec := Append(nil, batchOf(events).buf, 3)
	f.Add(rec)
	f.Add(rec[:10])
	f.Add([]byte(magic))
	f.Fuzz(func(t *testing.T, rec []byte) {
		for _, sealed := range [][]byte{rec, reseal(rec)} { // so as to pass the checksum too
			dst := make([]relay.Event, 1, 8)
			got, err := decodeAll(dst, sealed)
			if err != nil {
				require.True(t, errors.Is(err, ErrCorrupt) || errors.Is(err, ErrVersion), "%v", err)
				require.Len(t, got, 1)
			}
		}
	})
}

func reseal(rec []byte) []byte {
	if len(rec) < headerSize {
		return rec
	}
	out := append([]byte(nil), rec...)
	binary.LittleEndian.PutUint64(out[16:], checksum(out[:16], out[saltAt:]))
	return out
}

func TestEveryDamageOfARecordIsFound(t *testing.T) {
	t.Parallel()
	rec := Append(nil, batchOf(relaytest.Events(3)).buf, 3)
	_, err := decodeAll(nil, rec)
	require.NoError(t, err)
	for i := range rec {
		damaged := append([]byte(nil), rec...)
		damaged[i] ^= 0x10
		_, err := decodeAll(nil, damaged)
		require.ErrorIs(t, err, ErrCorrupt, "byte %d", i)
		_, err = decodeAll(nil, rec[:i])
		require.ErrorIs(t, err, ErrCorrupt, "cut at %d", i)
	}
}

// Events in a row with the same labels share them. The labels of another group, or other labels
// of an event, are not mixed up with these.
func TestEventsShareLabels(t *testing.T) {
	t.Parallel()
	one, two := []relay.Label{{Name: "a", Value: "1"}, {Name: "b", Value: "2"}}, []relay.Label{{Name: "a", Value: "1"}}
	var b Batch
	var want [][]relay.Label
	for _, group := range [][]relay.Label{nil, one, two} {
		b.Begin(Group{Source: "s", Labels: group})
		for _, own := range [][]relay.Label{one, one, two, two, nil, nil, one} {
			b.Add(&Entry{ID: []byte("i"), Labels: own})
			want = append(want, append(slices.Clone(group), own...))
		}
	}
	got, err := decodeAll(nil, Append(nil, b.Bytes(), len(want)))
	require.NoError(t, err)
	require.Len(t, got, len(want))
	for i, e := range got {
		assert.Equal(t, want[i], e.Labels, i)
	}
	assert.Same(t, &got[0].Labels[0], &got[1].Labels[0])
	assert.NotSame(t, &got[1].Labels[0], &got[2].Labels[0])
}

func BenchmarkDecodeLabels(b *testing.B) {
	events := relaytest.Events(1000)
	var batch Batch
	batch.Begin(Group{Source: "s"})
	labels := []relay.Label{{Name: "ddsource", Value: "idp"}, {Name: "service", Value: "idp"}, {Name: "hostname", Value: "idp-1"}, {Name: "env", Value: "prod"}}
	for _, e := range events {
		batch.Add(&Entry{ID: []byte(e.ID), Type: []byte(e.Type), Labels: labels, Body: e.Body})
	}
	rec := Append(nil, batch.Bytes(), len(events))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := decodeAll(nil, rec); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkAppendRecord(b *testing.B) {
	batch := batchOf(relaytest.Events(1000))
	b.SetBytes(int64(batch.Size()))
	b.ReportAllocs()
	var dst []byte
	for b.Loop() {
		dst = Append(dst[:0], batch.buf, batch.events)
	}
	b.ReportMetric(float64(len(dst))/1000, "bytes/event")
}

func BenchmarkDecodeRecord(b *testing.B) {
	batch := batchOf(relaytest.Events(1000))
	rec := Append(nil, batch.buf, batch.events)
	b.SetBytes(int64(batch.Size()))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := decodeAll(nil, rec); err != nil {
			b.Fatal(err)
		}
	}
}

// A recut batch holds the same events, in segments within the limit.
func TestABatchIsCutToFit(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(1, 2))
	for range 60 {
		limit := 2000 + rng.IntN(20_000)
		var b Batch
		for range 1 + rng.IntN(5) {
			b.Begin(Group{Source: "s", Project: "p", Received: time.Unix(1, 2), Labels: labels(rng)})
			for _, e := range noisy(rng, rng.IntN(40), rng.IntN(limit-1900)) {
				b.Add(&Entry{ID: []byte(e.ID), Type: []byte(e.Type), Time: e.Time.UnixNano(), Labels: labels(rng), Body: e.Body})
			}
		}
		cut, err := Fit(&b, limit)
		require.NoError(t, err)
		assert.LessOrEqual(t, cut.longest(), limit)
		assert.Equal(t, b.Len(), cut.Len())
		want, err := decodeAll(nil, Append(nil, b.buf, b.events))
		require.NoError(t, err)
		var got []relay.Event
		for i := range cut.Segments() {
			data, n := cut.Segment(i)
			got, err = decodeAll(got, Append(nil, data, n))
			require.NoError(t, err)
		}
		require.Equal(t, want, got)
	}
}

func labels(rng *rand.Rand) []relay.Label {
	var out []relay.Label
	for range rng.IntN(4) {
		out = append(out, relay.Label{Name: "name", Value: strings.Repeat("v", rng.IntN(300))})
	}
	return out
}
