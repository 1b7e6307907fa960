package journal

import (
	"bytes"
	"context"
	"encoding/binary"
	"log/slog"
	"testing"

	"github.com/cespare/xxhash/v2"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/internal/record"
	"github.com/auditrelay/auditrelay/internal/streamserver"
	"github.com/auditrelay/auditrelay/internal/testbed/waiting"
	"github.com/auditrelay/auditrelay/relay/relaytest"
)

// later is a record of a later version.
func later(n int) []byte {
	rec := record.Append(nil, batchOf(relaytest.Events(3, relaytest.From(n))).Bytes(), 3)
	rec[3]++
	rec[len(rec)-1] ^= 1
	return reseal(rec)
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

// publish puts raw records into the events' stream.
func (o *opened) publish(t *testing.T, records ...[]byte) {
	t.Helper()
	for _, rec := range records {
		_, err := o.conn.JetStream.Publish(t.Context(), o.names.eventsSubject, rec)
		require.NoError(t, err)
	}
}

func TestRecordsOfALaterVersionRefuseTheStart(t *testing.T) {
	t.Parallel()
	for name, behind := range map[string]int{"the newest": 0, "in the middle": 5} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			j := open(t, dir, testConfig)
			j.push(t, relaytest.Events(3))
			j.publish(t, later(100), later(200))
			for i := range behind {
				j.push(t, relaytest.Events(1, relaytest.From(1000+i)))
			}
			j.shut(t)
			before := snapshot(t, dir)
			_, err := streamserver.Connect(t.Context(), dir, testConfig, slog.New(slog.DiscardHandler))
			require.ErrorIs(t, err, record.ErrVersion)
			assert.ErrorContains(t, err, `2 records cannot be read by this version, the first at position 2: written by a later version of auditrelay: the record begins with "ARJ2"`)
			after := snapshot(t, dir)
			delete(after, dir+"/lock")
			for path, content := range before {
				if path != dir+"/lock" {
					assert.Equal(t, content, after[path], "%s was changed", path)
				}
			}
		})
	}
}

// On a shared cluster a later version may begin to write while this one runs.
func TestASourceWaitsAtARecordOfALaterVersion(t *testing.T) {
	t.Parallel()
	j := open(t, t.TempDir(), testConfig)
	defer j.shut(t)
	s := j.source(t, "k")
	defer s.Close()
	first := relaytest.Events(2)
	j.push(t, first)
	j.publish(t, later(100))
	j.push(t, relaytest.Events(2, relaytest.From(1000)))
	assert.Equal(t, ids(first), ids(read(t, s, 2, true)))
	waiting.Until(t, func() bool { return len(j.Losses.Damage().Waiting) == 1 })
	assert.Contains(t, j.Losses.Damage().Waiting["k"], "position 2: written by a later version")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := s.Next(ctx)
	require.ErrorIs(t, err, context.Canceled, "nothing behind it is given")
	quarantine, err := j.Losses.All(t.Context())
	require.NoError(t, err)
	assert.Empty(t, quarantine)
	info, err := s.consumer.Info(t.Context())
	require.NoError(t, err)
	assert.LessOrEqual(t, info.AckFloor.Stream, uint64(1))
}

func TestWhoWritesIsNoted(t *testing.T) {
	t.Parallel()
	j := open(t, t.TempDir(), testConfig)
	defer j.shut(t)
	again, err := Open(t.Context(), j.conn, testConfig, Options{Logger: slog.New(slog.DiscardHandler), Registerer: prometheus.NewRegistry(), Version: "v1.2.3"})
	require.NoError(t, err)
	again.Close()
	stream, err := j.conn.JetStream.Stream(t.Context(), j.names.events)
	require.NoError(t, err)
	assert.Equal(t, "v1.2.3", stream.CachedInfo().Config.Metadata["auditrelay.version"])
}
