package webhook

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/config/secret"
	"github.com/auditrelay/auditrelay/relay"
)

// With the format ocsf, a request contains only the objects, each on a line.
func TestObjectsOnLines(t *testing.T) {
	t.Parallel()
	arrived := make(chan string, 1)
	receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		arrived <- r.Header.Get("Content-Type") + "\n" + string(body)
	}))
	t.Cleanup(receiver.Close)
	sink, err := New(config.Webhook{URL: secret.New(receiver.URL)}, Options{Format: config.FormatOCSF})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, sink.Close()) })
	require.NoError(t, sink.Deliver(t.Context(), []relay.Event{{Body: []byte(`{"a":1}`)}, {Body: []byte(`{"b":2}`)}}))
	assert.Equal(t, "application/x-ndjson\n{\"a\":1}\n{\"b\":2}\n", <-arrived)
}
