package journal

import (
	"bytes"
	"context"
	"encoding/binary"
	"testing"

	"github.com/cespare/xxhash/v2"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/internal/journal/record"
	"github.com/auditrelay/auditrelay/internal/store"
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

// publish puts raw records into the log of events.
func (o *opened) publish(t testing.TB, records ...[]byte) {
	t.Helper()
	for _, rec := range records {
		o.publishAs(t, kindEvents, rec)
	}
}

func (o *opened) publishAs(t testing.TB, kind uint8, rec []byte) {
	t.Helper()
	_, err := o.events.Append(t.Context(), store.Draft{Kind: kind, Key: "1", Data: rec})
	require.NoError(t, err)
}

// On a shared cluster a later version may begin to write while this one runs, and the
// version before it may come back on one machine: nothing is passed over.
func TestASourceWaitsAtARecordOfALaterVersion(t *testing.T) {
	t.Parallel()
	for name, publish := range map[string]func(*opened){
		"of the record": func(j *opened) { j.publish(t, later(100)) },
		"of the kind":   func(j *opened) { j.publishAs(t, kindEvents+1, []byte("anything")) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			j := open(t, t.TempDir(), testConfig)
			s := j.source(t, "k")
			defer s.Close()
			first := relaytest.Events(2)
			j.push(t, first)
			publish(j)
			j.push(t, relaytest.Events(2, relaytest.From(1000)))
			assert.Equal(t, ids(first), ids(read(t, s, 2, true)))
			waiting.Until(t, func() bool { return len(j.names.Damage().Waiting) == 1 })
			assert.Contains(t, j.names.Damage().Waiting["k"], "position 2: written by a later version")
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			_, err := s.Next(ctx)
			require.ErrorIs(t, err, context.Canceled, "nothing after it is given")
			named, err := j.names.All(t.Context())
			require.NoError(t, err)
			assert.Empty(t, named)
			acked, err := j.delivered(t.Context())
			require.NoError(t, err)
			assert.EqualValues(t, 1, acked)
		})
	}
}
