package nats

import (
	"net/url"
	"strings"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	natsgo "github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/relay"
	"github.com/auditrelay/auditrelay/relay/relaytest"
)

func TestContractJetStream(t *testing.T) {
	t.Parallel()
	relaytest.Run(t, relaytest.Harness{New: func(t *testing.T) relaytest.Destination {
		srv := startServer(t, nil)
		stream := createTestStream(t, dial(t, srv), nil)
		p := newProxy(t, srv.Addr().String())
		return destination(newSink(t, p.address, nil), p, func() []relaytest.Arrival { return arrived(t, stream) })
	}})
}

func TestContractCore(t *testing.T) {
	t.Parallel()
	relaytest.Run(t, relaytest.Harness{New: func(t *testing.T) relaytest.Destination {
		srv := startServer(t, func(o *server.Options) { o.JetStream = false })
		read := subscribe(t, dial(t, srv))
		p := newProxy(t, srv.Addr().String())
		sink := newSink(t, p.address, func(c *config.NATS) { c.Mode = "core" })
		return destination(sink, p, read)
	}})
}

func destination(s *Sink, p *proxy, arrived func() []relaytest.Arrival) relaytest.Destination {
	return relaytest.Destination{
		Sink: s, Arrived: arrived, Secrets: []string{testPassword},
		Down: p.down, Up: p.up, Stall: p.stall,
		Refuse: func(e *relay.Event) { e.Body = []byte(strings.Repeat("x", 1<<20)) },
	}
}

// subscribe receives all messages from now on.
func subscribe(t *testing.T, nc *natsgo.Conn) func() []relaytest.Arrival {
	sub, err := nc.SubscribeSync("auditrelay.>")
	require.NoError(t, err)
	require.NoError(t, sub.SetPendingLimits(-1, -1))
	require.NoError(t, nc.Flush())
	var out []relaytest.Arrival
	return func() []relaytest.Arrival {
		require.NoError(t, nc.Flush()) // the server has sent everything
		for pending, _, _ := sub.Pending(); pending > 0; pending-- {
			m, err := sub.NextMsgWithContext(t.Context())
			require.NoError(t, err)
			out = append(out, arrival(t, m.Header, m.Data))
		}
		return out
	}
}

func TestSubjectsEndInTheTypesTokens(t *testing.T) {
	t.Parallel()
	whole, mixed := parseSubject("a.{project}.{type}"), parseSubject("a.{type}.{project}")
	require.Equal(t, []string{"a.*.>", "a.*.*"}, []string{whole.pattern(), mixed.pattern()})
	for kind, want := range map[string]string{
		"settings.changed": "a.p.settings.changed", "": "a.p._", "_": "a.p.%5F", "a._": "a.p.a.%5F", "a.*.>": "a.p.a.%2A.%3E",
		".": "a.p.%2E", "a..b": "a.p.a%2E%2Eb", ".a": "a.p.%2Ea", "a.": "a.p.a%2E",
	} {
		require.Equal(t, want, string(whole.appendFor(nil, &relay.Event{Project: "p", Type: kind})))
	}
	require.Equal(t, "a.settings%2Echanged.p", string(mixed.appendFor(nil, &relay.Event{Project: "p", Type: "settings.changed"})))
}

func TestTokensAreReversible(t *testing.T) {
	t.Parallel()
	values := []string{"", "_", "a", "a.b", "%", "%2E", ".", "*", ">", "$JS", " ", "\x00", "é日本", "a_b", "__"}
	seen := map[string]string{}
	name := relay.ParseTemplate("{project}")
	for _, v := range values {
		token := string(name.AppendName(nil, &relay.Event{Project: v}, appendToken))
		require.NotContains(t, seen, token, "%q and %q are the same token", v, seen[token])
		seen[token] = v
		require.NotEmpty(t, token)
		require.False(t, strings.ContainsAny(token, " .*>$\x00"))
		if v != "" {
			back, err := url.PathUnescape(token)
			require.NoError(t, err)
			require.Equal(t, v, back)
		}
	}
}
