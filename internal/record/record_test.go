package record

import (
	"encoding/binary"
	"errors"
	"math"
	"math/rand/v2"
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
		for _, sealed := range [][]byte{rec, reseal(rec)} { // past the checksum, too
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
	binary.LittleEndian.PutUint64(out[16:], checksum(out[:16], out[headerSize:]))
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
		for i, c := range cut.cuts {
			got, err = decodeAll(got, Append(nil, cut.segment(i), c.events))
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
