package verify

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/internal/trail/proof"
)

// slow answers with bytes that each take some time, and then with nothing more.
type slow struct {
	ctx   context.Context //nolint:containedctx // of the request
	text  io.Reader
	each  time.Duration
	stops bool
}

func (s *slow) RoundTrip(r *http.Request) (*http.Response, error) {
	s.ctx = r.Context()
	return &http.Response{StatusCode: http.StatusOK, Body: s, Request: r}, nil
}

func (s *slow) Read(p []byte) (int, error) {
	time.Sleep(s.each)
	n, err := s.text.Read(p[:1])
	if err == io.EOF && s.stops {
		<-s.ctx.Done()
		return 0, s.ctx.Err()
	}
	return n, err
}

func (s *slow) Close() error { return nil }

// A long history takes its time, and more while its signatures are checked. A server that is silent is given up.
func TestASlowSiteIsReadAndASilentOneGivenUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		site := &slow{text: bytes.NewReader(make([]byte, 30)), each: patience / 2}
		fetch, _, err := Site(t.Context(), &http.Client{Transport: site}, "https://example.com/tlog/0")
		require.NoError(t, err)
		body, err := fetch(t.Context(), proof.HistoryFile)
		require.NoError(t, err)
		time.Sleep(2 * patience) // the reader is slow too
		text, err := io.ReadAll(body)
		require.NoError(t, err)
		require.Len(t, text, 30)
		require.NoError(t, body.Close())

		site.text, site.stops = bytes.NewReader(make([]byte, 30)), true
		body, err = fetch(t.Context(), proof.HistoryFile)
		require.NoError(t, err)
		began := time.Now()
		text, err = io.ReadAll(body)
		require.ErrorContains(t, err, "the server is silent for 2m0s")
		require.Len(t, text, 30)
		require.Equal(t, 30*patience/2+patience, time.Since(began))
		require.NoError(t, body.Close())
	})
}
