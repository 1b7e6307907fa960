package cluster

import (
	"bytes"
	"context"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestACallerThatGivesUpIsNoOutage looks at what is logged when a question ends because its caller
// does not wait any longer, and when the servers are silent.
func TestACallerThatGivesUpIsNoOutage(t *testing.T) {
	var text bytes.Buffer
	log := slog.New(slog.NewTextHandler(&text, nil))
	ctx, giveUp := context.WithCancel(t.Context())
	err := await(ctx, log, "something", func(context.Context) error {
		giveUp()
		return context.DeadlineExceeded
	})
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.Empty(t, text.String())

	asked := 0
	require.NoError(t, await(t.Context(), log, "something", func(context.Context) error {
		if asked++; asked == 1 {
			return context.DeadlineExceeded
		}
		return nil
	}))
	require.Contains(t, text.String(), "waiting for the journal's servers")
}
