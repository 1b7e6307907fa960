package journal

import (
	"math/rand/v2"
	"net"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/internal/record"
	"github.com/auditrelay/auditrelay/internal/testbed/waiting"
	"github.com/auditrelay/auditrelay/relay"
	"github.com/auditrelay/auditrelay/relay/relaytest"
)

func taking(payload int32) func(*server.Options) {
	return func(o *server.Options) { o.MaxPayload = payload }
}

// noisy gives events with incompressible bodies of n bytes.
func noisy(from, count, n int) []relay.Event {
	events := relaytest.Events(count, relaytest.From(from))
	random := rand.NewChaCha8([32]byte{byte(from)})
	for i := range events {
		events[i].Body = make([]byte, n)
		_, _ = random.Read(events[i].Body)
	}
	return events
}

// The server comes back and takes less than before: later pushes are cut to fit, its
// records are still read, and a larger event is refused by name.
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
	waiting.Until(t, func() bool { return j.conn.MaxPayload() == 64<<10 })
	assert.Equal(t, 48<<10, j.MaxEvent())

	after := noisy(5000, 1000, 1000)
	after[500].Body = noisy(0, 1, 47<<10)[0].Body
	j.push(t, after)
	large := noisy(9000, 1, 48<<10)
	err := j.Append(t.Context(), batchOf(append(noisy(8000, 3, 10), large...)))
	require.ErrorIs(t, err, record.ErrTooLarge)
	require.ErrorContains(t, err, "and the journal takes 49152 at most")

	s := j.source(t, "k")
	defer s.Close()
	assert.Equal(t, append(before, after...), read(t, s, 4000, true))
}
