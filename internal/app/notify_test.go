package app

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/config/secret"
	"github.com/auditrelay/auditrelay/internal/console"
	"github.com/auditrelay/auditrelay/internal/testbed/waiting"
	"github.com/auditrelay/auditrelay/internal/workspace"
)

// receiver keeps the bodies of POST requests.
type receiver struct {
	*httptest.Server
	mu     sync.Mutex
	bodies []string
}

func newReceiver(t *testing.T) *receiver {
	t.Helper()
	r := &receiver{}
	r.Server = httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
		body, _ := io.ReadAll(req.Body)
		r.mu.Lock()
		defer r.mu.Unlock()
		r.bodies = append(r.bodies, string(body))
	}))
	t.Cleanup(r.Close)
	return r
}

func (r *receiver) got() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]string{}, r.bodies...)
}

// notifies is a webhook as the documents have it: see deploy/README.md.
func notifies(name, format string, to *receiver) config.Sink {
	return config.Sink{
		Name: name, Format: format, Webhook: &config.Webhook{URL: secret.New(to.URL)},
		Match: &config.Match{Types: []string{"health.*"}, CEL: "!has(body.detail.silenced)"},
	}
}

func withEnvironments(cfg *config.Config, names ...string) *config.Config {
	cfg.Environments = nil
	for _, name := range names {
		cfg.Environments = append(cfg.Environments, config.Environment{
			Project: "acme", Environment: name,
			Credentials: []config.Credential{{Username: name, Password: secret.New("a-password-of-" + name)}},
		})
	}
	return cfg
}

func (r *running) pushAs(user, password string) int {
	r.t.Helper()
	body := `{"streams":[{"stream":{"app":"idp"},"values":[["1","{}"]]}]}`
	req, err := http.NewRequest(http.MethodPost, "http://"+r.Ingest+"/loki/api/v1/push", strings.NewReader(body))
	require.NoError(r.t, err)
	req.SetBasicAuth(user, password)
	req.Header.Set("Content-Type", "application/json")
	code, _ := r.do(req)
	return code
}

// Two environments are refused at once: that is one message, with what to do. A silenced one
// is in no message; its state and its entry are there.
func TestNotificationsAndSilences(t *testing.T) {
	t.Parallel()
	chat, generic := newReceiver(t), newReceiver(t)
	cfg := withEnvironments(testConfig(t.TempDir(), notifies("chat", "slack", chat), notifies("generic", "cloudevents", generic)), "live", "test", "stage")
	cfg.SetDefaults()
	r := start(t, cfg)
	defer func() { require.NoError(t, r.stop()) }()
	client := console.NewClient(cfg.DataDir)
	client.Person = workspace.Person{User: "ann", Host: "desk"}
	label := `auditrelay_environment_silenced{environment="stage",project="acme"}`
	assert.Equal(t, "0", r.metric(label))
	added, err := client.AddSilence(context.Background(), console.AddSilence{Project: "acme", Environment: "stage", For: 3600, Reason: "upgrade"})
	require.NoError(t, err)
	assert.Equal(t, "1", r.metric(label))
	_, err = client.AddSilence(t.Context(), console.AddSilence{Project: "acme", Environment: "none", For: 3600, Reason: "upgrade"})
	require.ErrorContains(t, err, "acme/none is not in the running configuration")
	_, err = client.AddSilence(t.Context(), console.AddSilence{For: 1 << 62, Reason: "upgrade"})
	require.ErrorContains(t, err, "longer than 30 days")

	for _, e := range cfg.Environments {
		require.Equal(t, http.StatusNoContent, r.pushAs(e.Environment, "a-password-of-"+e.Environment))
	}
	var wrong sync.WaitGroup // wrong credentials are answered late
	for _, e := range cfg.Environments {
		wrong.Go(func() { assert.Equal(t, http.StatusUnauthorized, r.pushAs(e.Environment, "wrong")) })
	}
	wrong.Wait()
	waiting.Until(t, func() bool { return len(auditTypes(r, "health.changed")) == 3 }, "each has its event")
	waiting.Until(t, func() bool { return len(chat.got()) > 0 && len(generic.got()) > 0 }, "there are notifications")
	for _, body := range auditTypes(r, "health.changed") {
		assert.Equal(t, strings.Contains(body, `"environment":"stage"`), strings.Contains(body, `"silenced":"`+added.ID), body)
	}
	assert.NotContains(t, strings.Join(append(chat.got(), generic.got()...), ""), "stage")
	var message struct{ Text string }
	require.NoError(t, json.Unmarshal([]byte(chat.got()[0]), &message))
	assert.Contains(t, message.Text, "live: event log is refused since 20")

	list, err := client.Silences(t.Context())
	require.NoError(t, err)
	require.Len(t, list, 1)
	assert.Equal(t, added, list[0])
	assert.Equal(t, client.Person, added.Person)
	for _, e := range r.health() {
		assert.Equal(t, e.Environment == "stage", e.Silenced)
		assert.EqualValues(t, "refused", e.State)
	}
	_, err = client.EndSilence(t.Context(), console.EndSilence{ID: added.ID})
	require.NoError(t, err)
	assert.Equal(t, "0", r.metric(label))
	_, err = client.EndSilence(t.Context(), console.EndSilence{ID: added.ID})
	require.ErrorContains(t, err, "'auditrelay silence list' shows the active ones")
	waiting.Until(t, func() bool { return len(auditTypes(r, "silence.ended")) == 1 }, "it is an event")
}
