package sinks

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/relay/relaytest"
	"github.com/auditrelay/auditrelay/sinks/file"
	"github.com/auditrelay/auditrelay/sinks/kafka"
	"github.com/auditrelay/auditrelay/sinks/loki"
	"github.com/auditrelay/auditrelay/sinks/nats"
)

// Each section makes its sink, with nothing to connect to.
func TestOpen(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "events.jsonl")
	for want, s := range map[any]config.Sink{
		&kafka.Sink{}: {Name: "k", Kafka: &config.Kafka{Brokers: []string{"127.0.0.1:1"}}},
		&nats.Sink{}:  {Name: "n", NATS: &config.NATS{URL: "nats://127.0.0.1:1"}},
		&loki.Sink{}:  {Name: "l", Loki: &config.Loki{URL: "http://127.0.0.1:1/loki/api/v1/push"}},
		&file.Sink{}:  {Name: "f", File: &config.File{Path: path}},
	} {
		sink, err := Open(s, Deps{})
		require.NoError(t, err, s.Name)
		assert.IsType(t, want, sink)
		if s.File != nil {
			require.NoError(t, sink.Deliver(t.Context(), relaytest.Events(1)))
			require.FileExists(t, path)
		}
		require.NoError(t, sink.Close())
	}
}

func TestOpenErrors(t *testing.T) {
	t.Parallel()
	for want, s := range map[string]config.Sink{
		`open sink "a": it has 0 of the destinations`: {Name: "a"},
		`open sink "b": it has 2 of the destinations`: {Name: "b", Kafka: &config.Kafka{}, File: &config.File{}},
		`open sink "c": brokers: at least one`:        {Name: "c", Kafka: &config.Kafka{}},
		`open sink "d": path is not set`:              {Name: "d", File: &config.File{}},
		`open sink "f": url: it must be`:              {Name: "f", Loki: &config.Loki{}},
		`open sink "e": `:                             {Name: "e", NATS: &config.NATS{Mode: "x"}},
	} {
		sink, err := Open(s, Deps{})
		require.ErrorContains(t, err, want)
		assert.Nil(t, sink)
	}
}
