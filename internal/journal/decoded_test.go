package journal

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"log/slog"
	"testing"

	"github.com/cespare/xxhash/v2"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/internal/record"
	"github.com/auditrelay/auditrelay/relay/relaytest"
)

func TestDecodedCacheIsBoundedAndDecodesOnce(t *testing.T) {
	t.Parallel()
	c := newDecodedCache()
	rec := record.Append(nil, batchOf(relaytest.Events(3)).Bytes(), 3)
	first, fresh := c.decode(1, rec)
	require.NoError(t, first.err)
	require.Len(t, first.events, 3)
	assert.True(t, fresh)
	again, fresh := c.decode(1, rec)
	assert.Same(t, first, again)
	assert.False(t, fresh)
	other, _ := c.decode(1, record.Append(nil, batchOf(relaytest.Events(1, relaytest.From(9))).Bytes(), 1))
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
		r, _ := c.decode(seq, record.Append(nil, large.Bytes(), 100))
		require.Greater(t, r.size, 3_000_000)
		require.False(t, r.large)
	}
	assert.Len(t, c.order, 5, "of 3 MB each")
	assert.Equal(t, 5, c.bytes/3_000_000)
}

// reseal gives a record the right checksum.
func reseal(rec []byte) []byte {
	const header, sum = 24, 16
	out := bytes.Clone(rec)
	d := xxhash.New()
	_, _ = d.Write(out[:sum])
	_, _ = d.Write(out[header:])
	binary.LittleEndian.PutUint64(out[sum:], d.Sum64())
	return out
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
