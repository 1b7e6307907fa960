package datadog

import (
	"context"
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/config/secret"
	"github.com/auditrelay/auditrelay/internal/httpsink"
	"github.com/auditrelay/auditrelay/internal/testbed/waiting"
	"github.com/auditrelay/auditrelay/relay"
	"github.com/auditrelay/auditrelay/relay/relaytest"
)

var _ relay.Checker = (*Sink)(nil)

func TestSites(t *testing.T) {
	t.Parallel()
	d, tls := newTLSIntake(t)
	for i, site := range []string{
		"datadoghq.com", "us3.datadoghq.com", "us5.datadoghq.com", "ap1.datadoghq.com", "ap2.datadoghq.com",
		"uk1.datadoghq.com", "datadoghq.eu", "ddog-gov.com", "us2.ddog-gov.com", "us9.datadoghq.com", "",
	} {
		require.NoError(t, siteSink(t, d, tls, site).Deliver(t.Context(), relaytest.Events(1, relaytest.From(i))), site)
		if site == "" {
			site = "datadoghq.com"
		}
		assert.Equal(t, "http-intake.logs."+site, d.Requests()[i].Host)
	}
}

func TestTLS(t *testing.T) {
	t.Parallel()
	d, tls := newTLSIntake(t)
	for name, c := range map[string]*config.TLSClient{
		"the system's roots": nil, "another name": {CAFile: tls.CAFile, ServerName: "example.net"},
	} {
		err := newSink(t, d.URL, func(cfg *config.Datadog) { cfg.TLS = c }).Deliver(t.Context(), relaytest.Events(1))
		require.ErrorContains(t, err, "x509", name)
		assert.False(t, relay.IsPermanent(err))
	}
	require.NoError(t, newSink(t, d.URL, func(cfg *config.Datadog) { cfg.TLS = tls }).Deliver(t.Context(), relaytest.Events(1)))
}

// findings collects the findings of a check.
func findings(t *testing.T, s *Sink) (map[string]string, error) {
	t.Helper()
	found := map[string]string{}
	err := s.Check(t.Context(), func(what, f string) {
		assert.NotContains(t, f, testKey)
		found[what] = f
	})
	return found, err
}

func TestCheck(t *testing.T) {
	t.Parallel()
	d, tls := newTLSIntake(t)
	found, err := findings(t, siteSink(t, d, tls, "datadoghq.eu"))
	require.NoError(t, err)
	assert.Contains(t, found["intake"], "http-intake.logs.datadoghq.eu answers")
	assert.Contains(t, found["limits"], "1000 entries")
	assert.Equal(t, "valid", found["api key"])
	assert.Equal(t, 1, d.Validated())

	found, err = findings(t, newSink(t, d.URL, func(c *config.Datadog) { c.TLS = tls }))
	require.NoError(t, err)
	assert.Equal(t, d.Addr()+" answers", found["intake"])
	assert.Contains(t, found["api key"], "not checked")
	assert.Equal(t, 1, d.Validated(), "a custom intake has no such API")
	assert.Empty(t, d.Requests(), "a check writes nothing")
}

func TestCheckErrors(t *testing.T) {
	t.Parallel()
	d, tls := newTLSIntake(t)
	s := siteSink(t, d, tls, "datadoghq.com")
	s.key = "another-key"
	found, err := findings(t, s)
	require.ErrorContains(t, err, "api.datadoghq.com answered 403 Forbidden (the API key is not accepted; check api_key; it must be a key of this site)")
	assert.NotEmpty(t, found["intake"])

	_, err = findings(t, newSink(t, d.URL, nil))
	require.ErrorContains(t, err, "reach the intake: ")
	require.ErrorContains(t, err, "x509")

	url := serve(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) })
	_, err = findings(t, newSink(t, url, nil))
	require.ErrorContains(t, err, "answered 503")

	d.Down()
	_, err = findings(t, siteSink(t, d, tls, "datadoghq.com"))
	require.ErrorContains(t, err, "reach the intake: ")
	d.Up()

	s = siteSink(t, d, tls, "datadoghq.com")
	require.NoError(t, s.Close())
	_, err = findings(t, s)
	require.ErrorIs(t, err, httpsink.ErrClosed)

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, siteSink(t, d, tls, "datadoghq.com").Check(ctx, func(string, string) {}), context.Canceled)
}

// A name that cannot be resolved is an outage like any other.
func TestUnknownHost(t *testing.T) {
	t.Parallel()
	s, err := New(complete(t, config.Datadog{APIKey: secret.New(testKey), URL: "https://intake.invalid"}), Options{Now: sentAt})
	require.NoError(t, err)
	defer func() { _ = s.Close() }()
	ctx, cancel := context.WithTimeout(t.Context(), waiting.Stall)
	defer cancel()
	err = s.Deliver(ctx, relaytest.Events(1))
	require.Error(t, err)
	assert.False(t, relay.IsPermanent(err))
}
