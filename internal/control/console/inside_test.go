package console_test

import (
	"context"
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/internal/control/console"
	"github.com/auditrelay/auditrelay/internal/journal/deadletters"
	"github.com/auditrelay/auditrelay/internal/trail/timeline"
	"github.com/auditrelay/auditrelay/internal/workspace"
	"github.com/auditrelay/auditrelay/relay/relaytest"
)

var bob = workspace.Person{User: "bob", Host: "sso", Claimed: "robert@home"}

func TestQuestionsWithinTheRelay(t *testing.T) {
	t.Parallel()
	s := newStage(t, "kafka")
	s.reject("kafka", "too large", 1, relaytest.Events(3)...)
	c := s.server.Client(bob)

	sinks, err := c.Sinks(t.Context())
	require.NoError(t, err)
	assert.EqualValues(t, 3, sinks[0].DeadLetters)

	var letters int
	require.NoError(t, c.Letters(t.Context(), console.ListLetters{}, func(*console.Letter) error { letters++; return nil }))
	assert.Equal(t, 3, letters)

	require.NoError(t, c.DiscardLetters(t.Context(), console.DiscardLetters{Filter: deadletters.Filter{Sink: "kafka"}}, func(*console.Progress) {}))
	require.Len(t, s.losses, 1)
	assert.Equal(t, bob, s.losses[0].Person, "the trail has somebody else")

	err = c.List(t.Context(), console.ListTrail{Filter: timeline.Filter{Severity: "dire"}}, func(timeline.Row) error { return nil })
	var refused *console.Refused
	require.ErrorAs(t, err, &refused)
	assert.Equal(t, http.StatusBadRequest, refused.Status)
	assert.Contains(t, refused.Reason, "dire")
}

func TestAQuestionWithinTheRelayEndsWithItsContext(t *testing.T) {
	t.Parallel()
	s := newStage(t, "kafka")
	ctx, cancel := context.WithCancel(t.Context())
	err := s.server.Client(bob).List(ctx, console.ListTrail{Follow: true, Following: func(int64) { cancel() }}, func(timeline.Row) error { return nil })
	require.ErrorIs(t, err, context.Canceled)
	s.stop() // waits for the question
}

// A reader that has stopped reading holds no stop up, and is told why its answer has ended.
func TestAStoppingRelayEndsQuestionsWithin(t *testing.T) {
	t.Parallel()
	s := newStage(t, "kafka")
	c := s.server.Client(bob)
	following := make(chan struct{})
	ended := make(chan error, 1)
	go func() {
		ended <- c.List(t.Context(), console.ListTrail{Follow: true, Following: func(int64) { close(following) }}, func(timeline.Row) error { return nil })
	}()
	<-following
	s.stop()
	require.ErrorContains(t, <-ended, "the relay is shutting down")
	_, err := c.Sinks(t.Context())
	require.ErrorContains(t, err, "the relay is shutting down")
}
