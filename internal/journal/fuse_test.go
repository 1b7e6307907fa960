package journal

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/internal/testbed/waiting"
	"github.com/auditrelay/auditrelay/relay/relaytest"
)

// untilWaiting reads until the sink waits before damage. Nothing may come.
func untilWaiting(t *testing.T, j *opened, s *Source) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	came := make(chan error, 1)
	go func() {
		_, err := s.Next(ctx)
		came <- err
	}()
	waiting.Until(t, func() bool { return len(j.names.Damage().Waiting) > 0 })
	cancel()
	require.ErrorIs(t, <-came, context.Canceled)
}

// Many records cannot be decoded, as after an unannounced change of format: sinks wait
// before them, ingest goes on, and after a person's acceptance all else is delivered.
func TestMuchDamageWaitsForAPerson(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	j := open(t, dir, testConfig)
	first := relaytest.Events(2)
	j.push(t, first)
	for range 30 {
		j.publish(t, []byte("no record at all"))
	}
	s := j.source(t, "k")
	assert.Equal(t, ids(first), ids(read(t, s, 2, true)))
	untilWaiting(t, j, s)
	last := relaytest.Events(2, relaytest.From(1000))
	j.push(t, last) // ingest goes on
	s.Close()
	j.shut(t)

	j = open(t, dir, testConfig) // a restart does not answer for the person
	s = j.source(t, "k")
	untilWaiting(t, j, s)
	acked, err := j.delivered(t.Context())
	require.NoError(t, err)
	assert.LessOrEqual(t, acked, uint64(1+10), "nothing after that is acknowledged")
	was, err := j.names.Accept(t.Context())
	require.NoError(t, err)
	assert.True(t, was.Held)
	assert.Equal(t, ids(last), ids(read(t, s, 2, true)))
	named, err := j.names.All(t.Context())
	require.NoError(t, err)
	assert.Len(t, named, 30, "each is named all the same")
	assert.False(t, j.names.Damage().Held)
	_, err = j.names.Accept(t.Context())
	require.ErrorIs(t, err, ErrNoDamage)

	s.Close()
	j.shut(t)
	j = open(t, dir, testConfig)
	assert.False(t, j.names.Damage().Held, "the next start knows that it was accepted")
}
