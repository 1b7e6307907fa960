package tiles

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/auditrelay/auditrelay/internal/trail/audit"
)

// unavailable is a trail whose leaves cannot be read, as somebody else's reading of it was given up.
type unavailable struct {
	*audit.Trail
	asked  int
	enough context.CancelFunc
}

func (u *unavailable) Leaves(context.Context, int64, int64) ([]tlog.Hash, error) {
	if u.asked++; u.asked == 100 {
		u.enough()
	}
	return nil, fmt.Errorf("%w: %w", audit.ErrUnavailable, context.Canceled)
}

// The end of a context that is not the keeper's is a failure like any other one: it is tried again after a
// pause, and not at once for as long as it lasts.
func TestAnothersCancelledContextIsNoReasonToHurry(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t, 10)
		ctx, cancel := context.WithTimeout(t.Context(), 10*retryPause+time.Second)
		defer cancel()
		trail := &unavailable{Trail: h.trail, enough: cancel}
		NewKeeper(h.store, trail, h.trail.Generations, slog.New(slog.DiscardHandler)).Keep(ctx)
		require.Equal(t, 11, trail.asked)
	})
}

// A new trail is signed after its keeper has begun. That is no damage, and nobody is told of it.
func TestANewTrailHasNothingToReadBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t, 0)
		var logged bytes.Buffer
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			NewKeeper(h.store, h.trail, h.trail.Generations, slog.New(slog.NewTextHandler(&logged, nil))).Keep(ctx)
		}()
		synctest.Wait()
		_, err := h.trail.Append(t.Context(), entry(0))
		require.NoError(t, err)
		require.NoError(t, h.trail.Sign(t.Context()))
		synctest.Wait()
		require.Equal(t, []int{1}, h.published())
		stop()
		<-ended
		require.Empty(t, logged.String())
	})
}
