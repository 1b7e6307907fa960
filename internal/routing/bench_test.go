package routing

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/config/secret"
	"github.com/auditrelay/auditrelay/relay"
	"github.com/auditrelay/auditrelay/relay/relaytest"
)

// taker takes everything and keeps nothing.
type taker struct{}

func (taker) Deliver(context.Context, []relay.Event) error { return nil }
func (taker) Close() error                                 { return nil }

// This test is not parallel, since it would count the allocations of others.
func TestNothingIsAllocatedWhereNothingChanges(t *testing.T) {
	events := relaytest.Events(500)
	for name, c := range map[string]struct {
		match  *config.Match
		redact *config.Redact
	}{
		"all match":         {match: &config.Match{Types: []string{"event_log.*"}, Environments: []string{"*"}}},
		"none matches":      {match: &config.Match{Types: []string{"settings.*"}}},
		"nothing to redact": {redact: &config.Redact{Remove: []string{"/user/email"}}},
	} {
		sink := route(t, c.match, c.redact).Wrap(taker{})
		assert.Zero(t, testing.AllocsPerRun(20, func() { require.NoError(t, sink.Deliver(t.Context(), events)) }), name)
	}
}

func BenchmarkDeliver(b *testing.B) {
	events := relaytest.Events(1000)
	for _, c := range []struct {
		name   string
		match  *config.Match
		redact *config.Redact
	}{
		{"types-none", &config.Match{Types: []string{"settings.*"}}, nil},
		{"types-all", &config.Match{Types: []string{"event_log.*"}}, nil},
		{"cel-type", &config.Match{CEL: `type.startsWith("event_log.sessions.")`}, nil},
		{"cel-body", &config.Match{CEL: `has(body.status) && body.status == "error"`}, nil},
		{"cel-raw", &config.Match{CEL: `raw.contains("\"status\":\"error\"")`}, nil},
		{"redact-none", nil, &config.Redact{Remove: []string{"/user/email"}}},
		{"redact-two", nil, &config.Redact{Remove: []string{"/ip_address"}, Hash: []string{"/user_id"}, HashKey: secret.New("0123456789abcdef")}},
	} {
		b.Run(c.name, func(b *testing.B) {
			sink := route(b, c.match, c.redact).Wrap(taker{})
			b.ReportAllocs()
			for b.Loop() {
				if err := sink.Deliver(b.Context(), events); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(events)), "ns/event")
		})
	}
}
