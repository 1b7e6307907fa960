package tiles

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
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

// Whoever has seen a newer checkpoint at another relay would take the files as they were left for a log that
// went back.
func TestFilesAreShownOnceTheyHaveComeUpToTheTrail(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t, 10)
		require.NoError(t, h.keeper().Run(t.Context()))
		_, err := h.trail.Append(t.Context(), entry(10))
		require.NoError(t, err)
		require.NoError(t, h.trail.Sign(t.Context())) // by another relay

		ctx, stop := context.WithCancel(t.Context())
		late := NewKeeper(h.store, &unavailable{Trail: h.trail, enough: stop}, h.trail.Generations, nil)
		late.Keep(ctx)
		answer := get(late.Handler(), Prefix+"latest/checkpoint")
		require.Equal(t, http.StatusServiceUnavailable, answer.Code, answer.Body)
		require.Equal(t, "1", answer.Header().Get("Retry-After"))

		ctx, stop = context.WithCancel(t.Context())
		ended := make(chan struct{})
		keeper := h.keeper()
		go func() {
			defer close(ended)
			keeper.Keep(ctx)
		}()
		synctest.Wait()
		answer = get(keeper.Handler(), Prefix+"latest/checkpoint")
		require.Equal(t, http.StatusOK, answer.Code, answer.Body)
		require.Contains(t, answer.Body.String(), "\n11\n")
		stop()
		<-ended
	})
}

func get(h http.Handler, path string) *httptest.ResponseRecorder {
	answer := httptest.NewRecorder()
	h.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, path, nil))
	return answer
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
