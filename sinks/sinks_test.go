package sinks

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/relay"
	"github.com/auditrelay/auditrelay/relay/relaytest"
	"github.com/auditrelay/auditrelay/sinks/file"
	"github.com/auditrelay/auditrelay/sinks/kafka"
	"github.com/auditrelay/auditrelay/sinks/nats"
)

// Each section makes its sink, with nothing to connect to.
func TestOpen(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "events.jsonl")
	for want, s := range map[any]config.Sink{
		&kafka.Sink{}: {Name: "k", Kafka: &config.Kafka{Brokers: []string{"127.0.0.1:1"}}},
		&nats.Sink{}:  {Name: "n", NATS: &config.NATS{URL: "nats://127.0.0.1:1"}},
		&file.Sink{}:  {Name: "f", File: &config.File{Path: path}},
	} {
		sink, err := Open(s, Deps{})
		require.NoError(t, err, s.Name)
		assert.IsType(t, want, sink)
		assert.Implements(t, (*relay.Checker)(nil), sink)
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
		`open sink "e": `:                             {Name: "e", NATS: &config.NATS{Mode: "x"}},
	} {
		sink, err := Open(s, Deps{})
		require.ErrorContains(t, err, want)
		assert.Nil(t, sink)
	}
}

func TestCheck(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "events.jsonl")
	found := map[string]string{}
	report := func(what, text string) { found[what] = text }
	require.NoError(t, Check(t.Context(), config.Sink{Name: "f", File: &config.File{Path: path}}, report))
	assert.Contains(t, found["file "+path], "will be made")
	assert.NoFileExists(t, path)

	require.ErrorContains(t, Check(t.Context(), config.Sink{Name: "d", File: &config.File{}}, report), `open sink "d": path is not set`)
	require.ErrorIs(t, check(t.Context(), &relaytest.Sink{}, report), ErrNoCheck)
}
