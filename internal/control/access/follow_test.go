package access

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/internal/testbed/waiting"
)

// Of several relays on one store, each knows whom another has logged in, and logged out.
func TestSessionsOfAnotherRelay(t *testing.T) {
	t.Parallel()
	table, _ := newTable(t, t.TempDir())
	one, other := newSessions(t, table), newSessions(t, table)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { other.follow(ctx); close(ended) }()
	token := one.begin(t.Context(), person("ann"), Viewer)
	waiting.Until(t, func() bool { _, in := other.of(t.Context(), token, true); return in })
	_, err := other.end(t.Context(), func(*kept) bool { return true })
	require.NoError(t, err)
	go one.follow(ctx)
	waiting.Until(t, func() bool { return len(one.list()) == 0 })
	_, in := one.of(t.Context(), token, true)
	assert.False(t, in)
	cancel()
	<-ended
}

// Two relays log somebody in at once, and neither knows of the other one: nobody is logged out.
func TestSessionsOfTwoRelaysAtOnce(t *testing.T) {
	t.Parallel()
	table, _ := newTable(t, t.TempDir())
	one, other := newSessions(t, table), newSessions(t, table)
	one.begin(t.Context(), person("ann"), Viewer)
	other.begin(t.Context(), person("bob"), Viewer)
	assert.Len(t, other.list(), 2)
	assert.Len(t, newSessions(t, table).list(), 2)
}
