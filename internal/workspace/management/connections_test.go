package management

import (
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// As many connections are kept as requests may be under way at once: no second round of
// them shakes hands again.
func TestConnectionsAreKept(t *testing.T) {
	t.Parallel()
	var connections atomic.Int32
	arrived := make(chan struct{})
	together := make(chan struct{}) // a value for each request once all have come
	go func() {
		for range 2 {
			for range defaultAtOnce {
				<-arrived
			}
			for range defaultAtOnce {
				together <- struct{}{}
			}
		}
	}()
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		arrived <- struct{}{}
		<-together
		answer(w, 200, `{"project":{"name":"Acme"}}`)
	}))
	srv.Config.ConnState = func(_ net.Conn, s http.ConnState) {
		if s == http.StateNew {
			connections.Add(1)
		}
	}
	srv.Start()
	t.Cleanup(srv.Close)
	c, err := New(options(srv.URL))
	require.NoError(t, err)
	for range 2 {
		var all sync.WaitGroup
		for range defaultAtOnce {
			all.Go(func() {
				a, err := c.Project(t.Context(), "p")
				assert.NoError(t, err)
				assert.JSONEq(t, `{"name":"Acme"}`, string(a.Raw))
			})
		}
		all.Wait()
	}
	assert.EqualValues(t, defaultAtOnce, connections.Load())
}
