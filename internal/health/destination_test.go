package health

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/config/secret"
	"github.com/auditrelay/auditrelay/internal/testbed/realservers"
	"github.com/auditrelay/auditrelay/internal/testbed/waiting"
)

func lokiAt(t *testing.T, address string, change ...func(*config.StreamGrafanaLoki)) *Destination {
	t.Helper()
	c := &config.StreamGrafanaLoki{
		Hostname: "loki.example.com", Username: "push", Password: secret.New("push-hunter2"),
		Query: &config.LokiQuery{URL: address, Selector: `{app="idp"}`},
	}
	for _, f := range change {
		f(c)
	}
	s, err := DestinationOf(&config.Environment{Stream: &config.Stream{GrafanaLoki: c}})
	require.NoError(t, err)
	require.NotNil(t, s)
	return s
}

func datadogAt(t *testing.T, address string) *Destination {
	t.Helper()
	s, err := DestinationOf(&config.Environment{Stream: &config.Stream{Datadog: &config.StreamDatadog{
		APIKey: secret.New("api-hunter2"), ApplicationKey: secret.New("app-hunter2"), Site: "US", Search: "source:idp", SearchURL: address,
	}}})
	require.NoError(t, err)
	require.NotNil(t, s)
	return s
}

// answering is a server with one answer. It keeps the newest request.
func answering(t *testing.T, status int, body string) (address string, got *http.Request) {
	t.Helper()
	got = &http.Request{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		sent, _ := io.ReadAll(r.Body)
		*got = *r
		got.Body = io.NopCloser(strings.NewReader(string(sent)))
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}))
	t.Cleanup(server.Close)
	return server.URL, got
}

// TestNotWatched has environments without access to a foreign destination.
func TestNotWatched(t *testing.T) {
	t.Parallel()
	for _, s := range []*config.Stream{nil, {}, {Relay: &config.StreamRelay{}}, {Datadog: &config.StreamDatadog{}}, {GrafanaLoki: &config.StreamGrafanaLoki{}}} {
		got, err := DestinationOf(&config.Environment{Stream: s})
		require.NoError(t, err)
		assert.Nil(t, got)
	}
}

func TestLoki(t *testing.T) {
	t.Parallel()
	address, got := answering(t, 200, `{"status":"success","data":{"resultType":"streams","result":[`+
		`{"stream":{"app":"idp"},"values":[["1760000000000000000",""]]},{"stream":{},"values":[["1760000001000000000","",{"parsed":{}}]]}]}}`)
	newest, err := lokiAt(t, address+"/", func(c *config.StreamGrafanaLoki) { c.Query.Tenant = "audit" }).Newest(t.Context())
	require.NoError(t, err)
	assert.Equal(t, int64(1760000001), newest.Unix())
	assert.Equal(t, "/loki/api/v1/query_range", got.URL.Path)
	query := got.URL.Query()
	assert.Equal(t, `{app="idp"} | line_format ""`, query.Get("query"))
	assert.Equal(t, "1 backward", query.Get("limit")+" "+query.Get("direction"))
	user, password, _ := got.BasicAuth()
	assert.Equal(t, "push push-hunter2 audit", user+" "+password+" "+got.Header.Get("X-Scope-OrgID"), "the credential of pushes")
	_, err = lokiAt(t, address, func(c *config.StreamGrafanaLoki) {
		c.Query.Username, c.Query.Password = "reader", secret.New("other")
	}).Newest(t.Context())
	require.NoError(t, err)
	user, password, _ = got.BasicAuth()
	assert.Equal(t, "reader other", user+" "+password)
	assert.Equal(t, "https://loki.example.com", (&config.StreamGrafanaLoki{Hostname: "loki.example.com", Query: &config.LokiQuery{}}).QueryAddress())
}

func TestDatadog(t *testing.T) {
	t.Parallel()
	address, got := answering(t, 200, `{"data":[{"id":"a","type":"log","attributes":{"message":"x","timestamp":"2026-11-22T15:00:00.123Z"}}],"meta":{}}`)
	newest, err := datadogAt(t, address).Newest(t.Context())
	require.NoError(t, err)
	assert.Equal(t, "2026-11-22T15:00:00.123Z", newest.Format(time.RFC3339Nano))
	assert.Equal(t, "POST /api/v2/logs/events/search", got.Method+" "+got.URL.Path)
	assert.Equal(t, "api-hunter2 app-hunter2", got.Header.Get("DD-API-KEY")+" "+got.Header.Get("DD-APPLICATION-KEY"))
	body, err := io.ReadAll(got.Body)
	require.NoError(t, err)
	assert.JSONEq(t, `{"filter":{"query":"source:idp","from":"now-24h","to":"now"},"sort":"-timestamp","page":{"limit":1}}`, string(body))
	assert.Equal(t, "https://api.us3.datadoghq.com", (&config.StreamDatadog{Site: "US3"}).SearchAddress())
}

func TestNothingFound(t *testing.T) {
	t.Parallel()
	address, _ := answering(t, 200, `{"status":"success","data":{"resultType":"streams","result":[]}}`)
	newest, err := lokiAt(t, address).Newest(t.Context())
	require.NoError(t, err)
	assert.True(t, newest.IsZero())
	address, _ = answering(t, 200, `{"data":[]}`)
	newest, err = datadogAt(t, address).Newest(t.Context())
	require.NoError(t, err)
	assert.True(t, newest.IsZero())
}

// TestErrorsHaveNoSecrets answers with what it was sent.
func TestErrorsHaveNoSecrets(t *testing.T) {
	t.Parallel()
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	var strangers int
	stranger := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { strangers++ }))
	t.Cleanup(stranger.Close)
	redirecting := httptest.NewServer(http.RedirectHandler(stranger.URL, http.StatusTemporaryRedirect))
	t.Cleanup(redirecting.Close)
	authority := httptest.NewTLSServer(http.NotFoundHandler())
	authority.Config.ErrorLog = nil
	t.Cleanup(authority.Close)
	cases := map[string]string{ // an address to a part of the error
		gone.URL: "connection refused", redirecting.URL: "answered 307", authority.URL: "certificate",
	}
	for status, want := range map[int]string{401: "check the credential", 400: "check the selector", 404: "check the address", 500: "answered 500", 429: "429 Too Many Requests", 206: "answered 206"} {
		address, _ := answering(t, status, "hunter2")
		cases[address] = want
	}
	for body, want := range map[string]string{
		"hunter2": "no JSON", `{"data":{"resultType":"hunter2"}}`: "no", strings.Repeat(" ", maxAnswer+1): "more than",
		`{"data":{"resultType":"streams","result":[{"values":[["hunter2",""]]}]}}`: "no", `{"data":[{"attributes":{}}]}`: "no",
	} {
		address, _ := answering(t, 200, body)
		cases[address] = want
	}
	for address, want := range cases {
		for _, s := range []*Destination{lokiAt(t, address), datadogAt(t, address)} {
			_, err := s.Newest(t.Context())
			require.ErrorContains(t, err, want, address)
			assert.NotContains(t, err.Error(), "hunter2")
			assert.NotContains(t, err.Error(), "query_range")
		}
	}
	assert.Zero(t, strangers, "a redirect is not followed")
}

// TestRealLoki pushes two events to a real Loki, and asks for the newest.
func TestRealLoki(t *testing.T) {
	t.Parallel()
	binary := os.Getenv("AUDITRELAY_LOKI_BINARY")
	if binary == "" {
		t.Skip("SKIPPED, no real Loki: build one with cmd/integration/build-loki.sh, and name it in AUDITRELAY_LOKI_BINARY")
	}
	server, err := realservers.StartLoki(t.Context(), binary, t.TempDir())
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, server.Stop()) })
	source := lokiAt(t, server.URL)
	newest, err := source.Newest(t.Context())
	require.NoError(t, err)
	assert.True(t, newest.IsZero())
	want := time.Now().Add(-time.Minute)
	body := fmt.Sprintf(`{"streams":[{"stream":{"app":"idp"},"values":[["%d","a"],["%d","b"]]},{"stream":{"app":"other"},"values":[["%d","c"]]}]}`,
		want.Add(-time.Second).UnixNano(), want.UnixNano(), want.Add(time.Second).UnixNano())
	res, err := http.Post(server.URL+"/loki/api/v1/push", "application/json", strings.NewReader(body))
	require.NoError(t, err)
	require.NoError(t, res.Body.Close())
	require.Equal(t, http.StatusNoContent, res.StatusCode)
	waiting.Until(t, func() bool {
		newest, err := source.Newest(t.Context())
		return err == nil && newest.Equal(want)
	}, "the newest event is found")
}

func FuzzAnswers(f *testing.F) {
	f.Add([]byte(`{"status":"success","data":{"resultType":"streams","result":[{"values":[["1760000000000000000",""]]}]}}`))
	f.Add([]byte(`{"data":[{"attributes":{"timestamp":"2026-11-22T15:00:00.123Z"}}]}`))
	f.Fuzz(func(t *testing.T, answer []byte) {
		for _, read := range []func([]byte) (time.Time, error){lokiNewest, datadogNewest} {
			if newest, err := read(answer); err != nil && !newest.IsZero() {
				t.Errorf("%q gives a time and an error", answer)
			}
		}
	})
}
