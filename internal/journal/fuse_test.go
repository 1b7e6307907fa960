package journal

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/internal/losses"
	"github.com/auditrelay/auditrelay/relay/relaytest"
)

const (
	waitLong  = 5 * time.Minute // only a failure waits so long
	pollEvery = 5 * time.Millisecond
)

// untilWaiting reads until the sink waits before damage. Nothing may come.
func untilWaiting(t *testing.T, j *opened, s *Source) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), waitLong)
	defer cancel()
	go func() {
		for len(j.Losses.Damage().Waiting) == 0 && ctx.Err() == nil {
			time.Sleep(pollEvery)
		}
		cancel()
	}()
	_, err := s.Next(ctx)
	require.ErrorIs(t, err, context.Canceled)
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
	defer func() { j.shut(t) }()
	s = j.source(t, "k")
	untilWaiting(t, j, s)
	info, err := s.consumer.Info(t.Context())
	require.NoError(t, err)
	assert.LessOrEqual(t, info.AckFloor.Stream, uint64(1+10), "nothing behind that is acknowledged")
	was, err := j.Losses.Accept(t.Context())
	require.NoError(t, err)
	assert.True(t, was.Held)
	assert.Equal(t, ids(last), ids(read(t, s, 2, true)))
	quarantine, err := j.Losses.All(t.Context())
	require.NoError(t, err)
	assert.Len(t, quarantine, 30, "each is named all the same")
	assert.False(t, j.Losses.Damage().Held)
	_, err = j.Losses.Accept(t.Context())
	require.ErrorIs(t, err, losses.ErrNoDamage)

	s.Close()
	j.shut(t)
	j = open(t, dir, testConfig)
	assert.False(t, j.Losses.Damage().Held, "the next start knows that it was accepted")
}
