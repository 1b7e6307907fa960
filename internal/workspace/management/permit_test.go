package management_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/config/secret"
	"github.com/auditrelay/auditrelay/internal/workspace/management"
)

// A relay that may no longer be the one that changes the workspace sends nothing.
func TestNothingIsSentWithoutAPermit(t *testing.T) {
	t.Parallel()
	var requests atomic.Int64
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		requests.Add(1)
		w.WriteHeader(http.StatusNotFound)
	}))
	t.Cleanup(srv.Close)
	permitted := error(nil)
	c, err := management.New(management.Options{
		BaseURL: srv.URL, KeyID: "k", Secret: secret.New("s"), RequestsPerSecond: 1000, MaxAttempts: 1,
		Permit: func(context.Context) error { return permitted },
	})
	require.NoError(t, err)
	_, err = c.RBACPolicy(t.Context(), "p", "e")
	require.Error(t, err)
	assert.EqualValues(t, 1, requests.Load())
	permitted = assert.AnError
	_, err = c.RBACPolicy(t.Context(), "p", "e")
	require.ErrorIs(t, err, assert.AnError)
	assert.EqualValues(t, 1, requests.Load())
}
