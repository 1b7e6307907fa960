package loki

import (
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/config/secret"
	"github.com/auditrelay/auditrelay/relay"
	"github.com/auditrelay/auditrelay/relay/relaytest"
)

// Labels are not repeated as metadata; all other attributes are sent along under their own
// names.
func TestLabelsAndMetadata(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	s := f.sink(t, nil)
	e := relaytest.Events(1)[0]
	e.Subject = "user-1"
	e.Labels = []relay.Label{
		{Name: "job", Value: "event_log"},
		{Name: "environment", Value: "their own"},
		{Name: "k8s.io/app", Value: "a"},
		{Name: "k8s_io_app", Value: "b"},
		{Name: "empty"},
		{Name: "odd", Value: "a\xffb"},
	}
	project := relaytest.Events(1, relaytest.From(1))[0]
	project.Environment, project.Type, project.Labels = "", "settings.changed", nil
	require.NoError(t, s.Deliver(t.Context(), []relay.Event{e, project}))

	stored := f.entries()
	require.Len(t, stored, 2)
	if stored[0].labels["environment"] == "" {
		stored[0], stored[1] = stored[1], stored[0]
	}
	assert.Equal(t, map[string]string{"service_name": "auditrelay", "project": e.Project, "environment": e.Environment}, stored[0].labels)
	assert.Equal(t, map[string]string{
		"id": e.ID, "source": e.Source, "type": e.Type, "subject": "user-1", "datacontenttype": "application/json",
		"receivedtime": e.Received.UTC().Format(time.RFC3339Nano), "label_job": "event_log", "label_environment": "their own",
		"label_k8s_io_app": "a", "label_k8s_io_app_2": "b", "label_odd": "a?b",
	}, stored[0].meta())
	assert.True(t, e.Time.Equal(stored[0].Timestamp))
	assert.Equal(t, string(e.Body), stored[0].Line)
	assert.Equal(t, map[string]string{"service_name": "auditrelay", "project": e.Project}, stored[1].labels, "an empty label is left out")
	assert.Equal(t, "settings.changed", stored[1].meta()["type"])
}

func TestOwnLabels(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	s := f.sink(t, func(c *config.Loki) {
		c.Labels = map[string]string{"type": "{type}", "place": "x-{environment}", "env": "{environment}"}
	})
	events := relaytest.Events(1)
	require.NoError(t, s.Deliver(t.Context(), events))
	e := f.entries()[0]
	assert.Equal(t, map[string]string{"type": events[0].Type, "place": "x-" + events[0].Environment, "env": events[0].Environment}, e.labels)
	assert.NotContains(t, e.meta(), "type")
	assert.Equal(t, events[0].Environment, e.meta()["environment"])
	assert.Equal(t, events[0].Project, e.meta()["project"])

	s = f.sink(t, func(c *config.Loki) { c.Labels = map[string]string{"env": "{environment}"} })
	events = relaytest.Events(1, relaytest.From(5))
	events[0].Environment = ""
	require.NoError(t, s.Deliver(t.Context(), events))
	assert.Equal(t, map[string]string{"service_name": "auditrelay"}, f.entries()[1].labels, "a stream has a label")
}

func TestTenants(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	s := f.sink(t, func(c *config.Loki) { c.Tenant = "{project}-{environment}" })
	events := relaytest.Events(9, relaytest.Environments("acme/live", "acme/test", "globex/live"))
	events[3].Project = "a|b"
	events[4].Project = strings.Repeat("x", 200)
	err := s.Deliver(t.Context(), events)
	failures := permanent(t, err)
	assert.ErrorContains(t, failures[3], `tenant "a|b-live": it may hold letters`)
	assert.ErrorContains(t, failures[4], "longer than Loki's 150 bytes")
	assert.Len(t, failures, 2)
	tenants := map[string]int{}
	for _, e := range f.entries() {
		tenants[e.tenant]++
		assert.Equal(t, e.labels["project"]+"-"+e.labels["environment"], e.tenant)
	}
	assert.Equal(t, map[string]int{"acme-live": 2, "acme-test": 2, "globex-live": 3}, tenants)

	s = f.sink(t, func(c *config.Loki) { c.Tenant = "{environment}" })
	events = relaytest.Events(1)
	events[0].Environment = ""
	require.NoError(t, s.Deliver(t.Context(), events))
	assert.Equal(t, "_", f.entries()[len(f.entries())-1].tenant, "what concerns a project as a whole has no environment")
}

// permanent returns the failures of a partial error. All of them must be permanent.
func permanent(t testing.TB, err error) map[int]error {
	t.Helper()
	var partial *relay.PartialError
	require.ErrorAs(t, err, &partial)
	failures := map[int]error{}
	for _, f := range partial.Failures {
		assert.True(t, relay.IsPermanent(f.Err), "%v", f.Err)
		failures[f.Index] = f.Err
	}
	return failures
}

// Only events that can never be taken are refused, each by name.
func TestLimitsBeforeSending(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	s := f.sink(t, func(c *config.Loki) { c.Labels = map[string]string{"type": "{type}"} })
	events := relaytest.Events(6)
	events[1].Body = make([]byte, 256<<10+1)
	events[2].Type = strings.Repeat("t", 2049)
	events[3].Subject = strings.Repeat("s", 64<<10)
	events[4].Time = time.Date(2300, 1, 1, 0, 0, 0, 0, time.UTC)
	failures := permanent(t, s.Deliver(t.Context(), events))
	assert.ErrorContains(t, failures[1], "the body has 262145 bytes, and the sink's line_bytes is 262144")
	assert.ErrorContains(t, failures[2], "label type has 2049 bytes")
	assert.ErrorContains(t, failures[3], "the sink's metadata_bytes is 65536")
	assert.ErrorContains(t, failures[4], "out of Loki's range")
	assert.Len(t, failures, 4)
	assert.Equal(t, map[string]int{events[0].ID: 1, events[5].ID: 1}, f.byID())
}

// When the metadata does not fit, the sender's labels are cut, and it is recorded that they
// were.
func TestMetadataIsCutVisibly(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	f.limits.metaBytes, f.limits.metaNo = 2000, 20
	s := f.sink(t, func(c *config.Loki) { c.MetadataBytes, c.MetadataEntries = 2000, 20 })
	events := relaytest.Events(3)
	events[0].Labels, events[1].Labels = nil, nil
	for i := range 200 {
		events[0].Labels = append(events[0].Labels, relay.Label{Name: fmt.Sprintf("n%03d", i), Value: "v"}, relay.Label{Name: "empty"})
		events[1].Labels = append(events[1].Labels, relay.Label{Name: "same", Value: strings.Repeat("v", 500)})
	}
	require.NoError(t, s.Deliver(t.Context(), events))
	stored := f.entries()
	require.Len(t, stored, 3)
	many, large := stored[0].meta(), stored[1].meta()
	assert.Len(t, many, 20)
	assert.Equal(t, "186", many["metadata_dropped"])
	assert.Equal(t, "v", many["label_n013"])
	assert.NotContains(t, many, "label_n014")
	assert.Equal(t, "197", large["metadata_dropped"])
	assert.Contains(t, large, "label_same_2")
	assert.NotContains(t, stored[2].meta(), "metadata_dropped")
}

func TestCredentials(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	var header string
	f.answer = func(r *http.Request) *canned {
		header = r.Header.Get("Authorization")
		return &canned{status: http.StatusUnauthorized, text: "who is " + header + ", hunter2-token, hunter2-pass"}
	}
	s := f.sink(t, func(c *config.Loki) { c.BearerToken = secret.New("hunter2-token") })
	err := s.Deliver(t.Context(), relaytest.Events(2))
	require.Equal(t, "Bearer hunter2-token", header)
	assert.ErrorContains(t, err, "answered 401 Unauthorized: who is Bearer [redacted], [redacted]")
	assert.NotContains(t, err.Error(), "hunter2-token")
	assert.False(t, relay.IsPermanent(err), "a credential can be mended")

	f.set(func() {
		f.answer = func(r *http.Request) *canned {
			return refuse(http.StatusBadRequest, "the moon says hunter2-token, %s", r.Header.Get("Authorization"))
		}
	})
	err = permanent(t, s.Deliver(t.Context(), relaytest.Events(1)))[0]
	assert.EqualError(t, err, "loki refuses it: the moon says [redacted], Bearer [redacted]")

	f.set(func() {
		f.answer = func(r *http.Request) *canned {
			header = r.Header.Get("Authorization")
			return refuse(http.StatusForbidden, "%s hunter2-pass", header)
		}
	})
	s = f.sink(t, func(c *config.Loki) { c.Username, c.Password = "me", secret.New("hunter2-pass") })
	err = s.Deliver(t.Context(), relaytest.Events(2))
	require.Equal(t, "Basic bWU6aHVudGVyMi1wYXNz", header)
	assert.NotContains(t, err.Error(), "bWU6aHVudGVyMi1wYXNz")
	assert.NotContains(t, err.Error(), "hunter2-pass")
}

func TestTLS(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	secure := httptest.NewTLSServer(f.Config.Handler)
	t.Cleanup(secure.Close)
	ca := filepath.Join(t.TempDir(), "ca.pem")
	require.NoError(t, os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: secure.Certificate().Raw}), 0o600))
	cfg := config.Loki{URL: secure.URL + "/loki/api/v1/push", TLS: &config.TLSClient{}}
	s, err := New(complete(t, cfg), Options{})
	require.NoError(t, err)
	require.ErrorContains(t, s.Deliver(t.Context(), relaytest.Events(1)), "certificate")
	cfg.TLS.CAFile = ca
	s, err = New(complete(t, cfg), Options{})
	require.NoError(t, err)
	require.NoError(t, s.Deliver(t.Context(), relaytest.Events(1)))
	assert.Len(t, f.entries(), 1)
}

func TestNewErrors(t *testing.T) {
	t.Parallel()
	_, err := New(complete(t, config.Loki{URL: "https://x/push", TLS: &config.TLSClient{CAFile: "/nowhere"}}), Options{})
	require.ErrorContains(t, err, "tls: read CA file: open /nowhere")
}

// Statuses are classified; only 204 and 200 are acknowledgements.
func TestStatuses(t *testing.T) {
	t.Parallel()
	later := http.Header{"Retry-After": {"7"}}
	for _, c := range []struct {
		canned
		want  string // "" for none
		delay time.Duration
	}{
		{canned: canned{status: 204}},
		{canned: canned{status: 200}},
		{canned: canned{status: 200, text: `{"status":"success"}`}},
		{canned{status: 200, header: http.Header{"Content-Type": {"text/html; charset=utf-8"}}, text: "<html>Log in"}, "this is no answer of Loki's", 0},
		{canned{status: 200, text: `{"status":"error","error":"out of space"}`}, "this is no acknowledgement", 0},
		{canned{status: 202}, "answered 202 Accepted (this is no acknowledgement", 0},
		{canned{status: 260, text: "ingestion blocked for user 'fake'"}, "answered 260: ingestion blocked", 0},
		{canned{status: 301, header: http.Header{"Location": {"/elsewhere"}}}, "set url to the target itself", 0},
		{canned{status: 401}, "check username and password or bearer_token", 0},
		{canned{status: 403}, "whether they may write to this tenant", 0},
		{canned{status: 404}, "check url: it must be the push endpoint", 0},
		{canned{status: 400, header: http.Header{"Content-Type": {"text/html"}}}, "this is no answer of Loki's", 0},
		{canned{status: 429, text: "ingestion rate limit exceeded for user fake"}, "answered 429 Too Many Requests: ingestion rate limit", time.Second},
		{canned{status: 429, header: later}, "answered 429", 7 * time.Second},
		{canned{status: 429, header: http.Header{"Retry-After": {"999999"}}}, "answered 429", time.Hour},
		{canned{status: 503, header: later}, "answered 503", 7 * time.Second},
		{canned{status: 500, text: "boom"}, "answered 500 Internal Server Error: boom", 0},
		{canned{status: 400, text: "1 errors like: stream '{}' includes structured metadata, but this feature is disallowed."}, "correct labels, or Loki's limits", 0},
		{canned{status: 400, text: "missing required labels 'team' for user 'fake' for stream '{}' (policy: '')"}, "correct labels, or Loki's limits", 0},
	} {
		t.Run(fmt.Sprint(c.status, c.text), func(t *testing.T) {
			t.Parallel()
			f := newFake(t)
			f.answer = func(*http.Request) *canned { return &c.canned }
			s := f.sink(t, nil)
			err := s.Deliver(t.Context(), relaytest.Events(20, relaytest.Environments("a/b", "c/d")))
			if c.want == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, c.want)
			assert.Equal(t, c.status == 401 || c.status == 403, relay.ClassOf(err) == relay.ClassAuthentication)
			assert.Equal(t, c.delay > 0, relay.ClassOf(err) == relay.ClassThrottled)
			var partial *relay.PartialError
			assert.False(t, errors.As(err, &partial), "it concerns all")
			assert.False(t, relay.IsPermanent(err))
			delay, told := relay.RetryDelay(err)
			assert.Equal(t, c.delay > 0, told)
			assert.Equal(t, c.delay, delay)
		})
	}
}

// A stream that is rate-limited does not hold up the others, of which there are more than
// concurrent pushes.
func TestOneStreamIsLimited(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"Per stream rate limit exceeded (limit: 3MB/sec) while attempting to ingest for stream '{}' totaling 1B",
		"entry with timestamp 2026-11-21 09:48:29 +0000 UTC ignored, reason: 'Per stream rate limit exceeded (limit: 3MB/sec)',\nuser 'fake', total ignored: 1 out of 2 for stream: {}",
		"maximum active stream limit exceeded when trying to create stream {}",
	} {
		f := newFake(t)
		f.answer = func(r *http.Request) *canned {
			if r.Header.Get("X-Scope-OrgID") != "p0" {
				return nil
			}
			return refuse(http.StatusTooManyRequests, "%s", text)
		}
		var names []string
		for i := range 5 * inFlight {
			names = append(names, fmt.Sprintf("p%d/e", i))
		}
		s := f.sink(t, func(c *config.Loki) { c.Tenant = "{project}" })
		err := s.Deliver(t.Context(), relaytest.Events(3*len(names), relaytest.Environments(names...)))
		var partial *relay.PartialError
		require.ErrorAs(t, err, &partial)
		require.Len(t, partial.Failures, 3, text)
		for _, failure := range partial.Failures {
			assert.Zero(t, failure.Index%len(names))
			delay, _ := relay.RetryDelay(failure.Err)
			assert.Equal(t, time.Second, delay)
		}
		assert.Len(t, f.entries(), 3*len(names)-3)
	}
}

// loki-client-go's package loki would register metrics of promtail's.
func TestMetricsOfTheLibraries(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	f.sink(t, nil)
	f.sink(t, nil)
	families, err := prometheus.DefaultGatherer.Gather()
	require.NoError(t, err)
	for _, family := range families {
		assert.NotContains(t, family.GetName(), "promtail")
	}
}
