package journal

import (
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/relay"
	"github.com/auditrelay/auditrelay/relay/relaytest"
)

func TestDecodedCacheIsBoundedAndDecodesOnce(t *testing.T) {
	t.Parallel()
	c := newDecodedCache()
	rec := appendRecord(nil, batchOf(relaytest.Events(3)).buf, 3)
	first, fresh := c.decode(1, rec)
	require.NoError(t, first.err)
	require.Len(t, first.events, 3)
	assert.True(t, fresh)
	again, fresh := c.decode(1, rec)
	assert.Same(t, first, again)
	assert.False(t, fresh)
	other, _ := c.decode(1, appendRecord(nil, batchOf(relaytest.Events(1, relaytest.From(9))).buf, 1))
	require.NoError(t, other.err)
	assert.Len(t, other.events, 1, "the number was given to another record")
	for seq := range uint64(10 * decodedRecords) {
		_, _ = c.decode(seq, rec)
	}
	assert.Len(t, c.records, decodedRecords)
	assert.Len(t, c.order, decodedRecords)
	again, _ = c.decode(1, rec)
	assert.NotSame(t, first, again, "it was let go, and is decoded again")
	large := batchOf(relaytest.Events(100, relaytest.BodyBytes(30<<10)))
	for seq := range uint64(10) {
		r, _ := c.decode(seq, appendRecord(nil, large.buf, 100))
		require.Greater(t, r.size, 3_000_000)
		require.False(t, r.large)
	}
	assert.Len(t, c.order, 5, "of 3 MB each")
	assert.Equal(t, 5, c.bytes/3_000_000)
}

func FuzzDecodeRecord(f *testing.F) {
	events := relaytest.Events(3)
	rec := appendRecord(nil, batchOf(events).buf, 3)
	f.Add(rec)
	f.Add(rec[:10])
	f.Add([]byte(recordMagic))
	f.Fuzz(func(t *testing.T, rec []byte) {
		for _, sealed := range [][]byte{rec, reseal(rec)} { // past the checksum, too
			dst := make([]relay.Event, 1, 8)
			got, err := decodeRecord(dst, sealed)
			if err != nil {
				require.True(t, errors.Is(err, ErrCorrupt) || errors.Is(err, ErrVersion), "%v", err)
				require.Len(t, got, 1)
			}
		}
	})
}

func reseal(rec []byte) []byte {
	if len(rec) < recordHeader {
		return rec
	}
	out := append([]byte(nil), rec...)
	binary.LittleEndian.PutUint64(out[16:], recordSum(out[:16], out[recordHeader:]))
	return out
}

func TestEveryDamageOfARecordIsFound(t *testing.T) {
	t.Parallel()
	rec := appendRecord(nil, batchOf(relaytest.Events(3)).buf, 3)
	_, err := decodeRecord(nil, rec)
	require.NoError(t, err)
	for i := range rec {
		damaged := append([]byte(nil), rec...)
		damaged[i] ^= 0x10
		_, err := decodeRecord(nil, damaged)
		require.ErrorIs(t, err, ErrCorrupt, "byte %d", i)
		_, err = decodeRecord(nil, rec[:i])
		require.ErrorIs(t, err, ErrCorrupt, "cut at %d", i)
	}
}

func BenchmarkAppendRecord(b *testing.B) {
	batch := batchOf(relaytest.Events(1000))
	b.SetBytes(int64(batch.Size()))
	b.ReportAllocs()
	var dst []byte
	for b.Loop() {
		dst = appendRecord(dst[:0], batch.buf, batch.events)
	}
	b.ReportMetric(float64(len(dst))/1000, "bytes/event")
}

func BenchmarkDecodeRecord(b *testing.B) {
	batch := batchOf(relaytest.Events(1000))
	rec := appendRecord(nil, batch.buf, batch.events)
	b.SetBytes(int64(batch.Size()))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := decodeRecord(nil, rec); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkAppend pushes 100 events at a time from several goroutines.
func BenchmarkAppend(b *testing.B) {
	for _, pushers := range []int{1, 8, 64} {
		b.Run(fmt.Sprintf("pushers=%d", pushers), func(b *testing.B) {
			log := slog.New(slog.DiscardHandler)
			cfg := testConfig
			cfg.MaxBytes = 64 << 30
			conn, err := Connect(b.Context(), b.TempDir(), cfg, log)
			require.NoError(b, err)
			j, err := Open(b.Context(), conn, cfg, Options{Logger: log, Registerer: prometheus.NewRegistry()})
			require.NoError(b, err)
			b.SetParallelism(pushers)
			b.ReportAllocs()
			b.ResetTimer()
			b.RunParallel(func(pb *testing.PB) {
				batch := batchOf(relaytest.Events(100))
				for pb.Next() {
					if err := j.Append(b.Context(), batch); err != nil {
						b.Error(err)
					}
				}
			})
			b.StopTimer()
			b.ReportMetric(float64(b.N)*100/b.Elapsed().Seconds(), "events/s")
			b.ReportMetric(testutil.ToFloat64(j.metrics.commits)/float64(b.N), "commits/push")
			j.Close()
			_ = conn.Close()
		})
	}
}
