package datadog

import (
	"encoding/base64"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/config/secret"
	"github.com/auditrelay/auditrelay/internal/testbed/realservers"
	"github.com/auditrelay/auditrelay/relay"
	"github.com/auditrelay/auditrelay/relay/relaytest"
)

const testKey = "dd-key-0f3a77c1b2"

// sentAt is the clock of the sinks and intakes here: a while after the first of
// relaytest's events.
func sentAt() time.Time { return time.Date(2026, 11, 3, 9, 0, 0, 0, time.UTC) }

type intake struct{ *realservers.DatadogIntake }

func newIntake(t testing.TB) intake {
	t.Helper()
	d, err := realservers.StartDatadogIntake(realservers.DatadogOptions{APIKey: testKey, Now: sentAt, Keep: true})
	require.NoError(t, err)
	t.Cleanup(d.Close)
	return intake{d}
}

// newTLSIntake is an intake with a certificate the sink of TLS() trusts.
func newTLSIntake(t testing.TB) (intake, *config.TLSClient) {
	t.Helper()
	d, err := realservers.StartDatadogIntake(realservers.DatadogOptions{APIKey: testKey, Now: sentAt, Keep: true, TLS: true})
	require.NoError(t, err)
	t.Cleanup(d.Close)
	ca := filepath.Join(t.TempDir(), "ca.pem")
	require.NoError(t, os.WriteFile(ca, d.Certificate(), 0o600))
	return intake{d}, &config.TLSClient{CAFile: ca, ServerName: "example.com"}
}

// newSink makes a sink for an address; change may alter its config.
func newSink(t testing.TB, url string, change func(*config.Datadog)) *Sink {
	t.Helper()
	cfg := config.Datadog{APIKey: secret.New(testKey), URL: url}
	if change != nil {
		change(&cfg)
	}
	s, err := New(complete(t, cfg), Options{Now: sentAt})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

// siteSink makes a sink for a site, whose every connection goes to d.
func siteSink(t testing.TB, d intake, tls *config.TLSClient, site string) *Sink {
	t.Helper()
	s := newSink(t, "", func(c *config.Datadog) { c.Site, c.TLS = site, tls })
	s.client.Transport = toIntake{s.client.Transport, d}
	return s
}

// toIntake sends every request to an intake, whatever its host is.
type toIntake struct {
	http.RoundTripper
	intake
}

func (to toIntake) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Host, r.URL.Host = r.URL.Host, to.Addr()
	return to.RoundTripper.RoundTrip(r)
}

// serve is a server with the answers of f.
func serve(t testing.TB, f http.HandlerFunc) string {
	t.Helper()
	s := httptest.NewServer(f)
	t.Cleanup(s.Close)
	return s.URL
}

func (d intake) taken() []string {
	entries := d.Entries()
	ids := make([]string, len(entries))
	for i, e := range entries {
		ids[i] = e.CE["id"]
	}
	return ids
}

func idsOf(events []relay.Event) []string {
	ids := make([]string, len(events))
	for i := range events {
		ids[i] = events[i].ID
	}
	return ids
}

// failed returns the errors in err by the indexes of their events.
func failed(t testing.TB, err error) map[int]error {
	t.Helper()
	var partial *relay.PartialError
	require.ErrorAs(t, err, &partial)
	named, last := map[int]error{}, -1
	for _, f := range partial.Failures {
		require.Greater(t, f.Index, last)
		named[f.Index], last = f.Err, f.Index
	}
	return named
}

func TestContract(t *testing.T) {
	t.Parallel()
	for name, refuse := range map[string]func(intake) func(*relay.Event){
		"refused before it is sent": func(intake) func(*relay.Event) {
			return func(e *relay.Event) { e.Body = []byte(strings.Repeat("x", 2_000_000)) }
		},
		"refused by the intake": refusedByTheIntake,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			relaytest.Run(t, relaytest.Harness{New: func(t *testing.T) relaytest.Destination {
				d := newIntake(t)
				s := newSink(t, d.URL, func(c *config.Datadog) {
					c.OutsideWindow = "restamp" // the suite has events of any time
				})
				t.Cleanup(func() { assert.Empty(t, d.Violations()) })
				return relaytest.Destination{
					Sink: s, Secrets: []string{testKey}, Arrived: func() []relaytest.Arrival { return arrivals(t, d) },
					Down: d.Down, Up: d.Up, Stall: d.Stall, Refuse: refuse(d),
				}
			}})
		})
	}
}

func refusedByTheIntake(d intake) func(*relay.Event) {
	var mu sync.Mutex
	refused := map[string]bool{}
	d.Respond(func(_ int, ids []string) *realservers.DatadogAnswer {
		mu.Lock()
		defer mu.Unlock()
		if slices.ContainsFunc(ids, func(id string) bool { return refused[id] }) {
			return &realservers.DatadogAnswer{Status: 400, Body: `{"errors":[{"detail":"unprocessable entry"}]}`}
		}
		return nil
	})
	return func(e *relay.Event) {
		mu.Lock()
		defer mu.Unlock()
		refused[e.ID] = true
	}
}

func arrivals(t testing.TB, d intake) []relaytest.Arrival {
	t.Helper()
	entries := d.Entries()
	list := make([]relaytest.Arrival, len(entries))
	for i, e := range entries {
		body := []byte(e.Message)
		if marks, ok := e.All["auditrelay"].(map[string]any); ok && marks["encoding"] == "base64" {
			var err error
			body, err = base64.StdEncoding.DecodeString(e.Message)
			require.NoError(t, err)
		}
		list[i] = relaytest.Arrival{ID: e.CE["id"], Body: body, Attributes: e.CE}
	}
	return list
}

// complete fills in the defaults of a section, as the configuration does.
func complete(t testing.TB, cfg config.Datadog) config.Datadog {
	t.Helper()
	require.NoError(t, (&config.Sink{Name: "test", Datadog: &cfg}).Complete())
	return cfg
}
