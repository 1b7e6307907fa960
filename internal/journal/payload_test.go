package journal

import (
	"math/rand/v2"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/internal/testbed/waiting"
	"github.com/auditrelay/auditrelay/relay"
	"github.com/auditrelay/auditrelay/relay/relaytest"
)

func taking(payload int32) func(*server.Options) {
	return func(o *server.Options) { o.MaxPayload = payload }
}

// noisy gives events with bodies of n bytes that do not compress.
func noisy(from, count, n int) []relay.Event {
	events := relaytest.Events(count, relaytest.From(from))
	random := rand.NewChaCha8([32]byte{byte(from)})
	for i := range events {
		events[i].Body = make([]byte, n)
		_, _ = random.Read(events[i].Body)
	}
	return events
}

// The server comes back and takes less than before: what is pushed then is cut
// to fit, what it holds is still read, and what cannot fit is refused by name.
func TestASmallerPayload(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	srv := startExternal(t, dir, 0)
	cfg := testConfig
	cfg.URL = srv.ClientURL()
	j := open(t, t.TempDir(), cfg)
	defer j.shut(t)
	before := noisy(0, 3000, 1000)
	j.push(t, before)
	addr, ok := srv.Addr().(*net.TCPAddr)
	require.True(t, ok)
	srv.Shutdown()
	srv.WaitForShutdown()
	startExternal(t, dir, addr.Port, taking(64<<10))
	waiting.Until(t, func() bool { return j.conn.maxPayload() == 64<<10 })
	assert.Equal(t, 48<<10, j.MaxEvent())

	after := noisy(5000, 1000, 1000)
	after[500].Body = noisy(0, 1, 47<<10)[0].Body
	j.push(t, after)
	large := noisy(9000, 1, 48<<10)
	err := j.Append(t.Context(), batchOf(append(noisy(8000, 3, 10), large...)))
	require.ErrorIs(t, err, ErrTooLarge)
	require.ErrorContains(t, err, "and the journal takes 49152 at most")
	require.NoError(t, j.Reject(t.Context(), "k", []relay.Rejection{{Event: after[500], Reason: strings.Repeat("long ", 1000)}}))

	s := j.source(t, "k")
	defer s.Close()
	assert.Equal(t, append(before, after...), read(t, s, 4000, true))
	letters := 0
	require.NoError(t, j.DeadLetters(t.Context(), func(d DeadLetter) bool {
		letters++
		return assert.Equal(t, after[500], d.Event)
	}))
	assert.Equal(t, 1, letters)
}

// A batch that is cut anew holds the same events, in segments that fit.
func TestABatchIsCutToFit(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(1, 2))
	for range 60 {
		limit := 2000 + rng.IntN(20_000)
		var b Batch
		for range 1 + rng.IntN(5) {
			b.Begin(Group{Source: "s", Project: "p", Received: time.Unix(1, 2), Labels: labels(rng)})
			for _, e := range noisy(rng.IntN(1000), rng.IntN(40), rng.IntN(limit-1900)) {
				b.Add(&Entry{ID: []byte(e.ID), Type: []byte(e.Type), Time: e.Time.UnixNano(), Labels: labels(rng), Body: e.Body})
			}
		}
		cut, err := fitting(&b, limit)
		require.NoError(t, err)
		assert.LessOrEqual(t, cut.longest(), limit)
		assert.Equal(t, b.Len(), cut.Len())
		want, err := decodeRecord(nil, appendRecord(nil, b.buf, b.events))
		require.NoError(t, err)
		var got []relay.Event
		for i, c := range cut.cuts {
			got, err = decodeRecord(got, appendRecord(nil, cut.segment(i), c.events))
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
