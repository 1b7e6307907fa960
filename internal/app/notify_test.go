package app

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/config/secret"
	"github.com/auditrelay/auditrelay/internal/control/console"
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

// notifies is a webhook as the documents have it: see deploy/README.md. It waits until its
// batch is full, so no clock decides about the test.
func notifies(name, format string, to *receiver) config.Sink {
	return config.Sink{
		Name: name, Format: format, BatchEvents: 50, BatchWait: time.Minute, Webhook: &config.Webhook{URL: secret.New(to.URL)},
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

func (r *running) pushAs(user, password string, events int) int {
	r.t.Helper()
	var values []string
	for i := range events {
		values = append(values, fmt.Sprintf(`["%d","%s %d"]`, time.Now().UnixNano(), user, i))
	}
	body := `{"streams":[{"stream":{"app":"idp"},"values":[` + strings.Join(values, ",") + `]}]}`
	req, err := http.NewRequest(http.MethodPost, "http://"+r.Ingest+"/loki/api/v1/push", strings.NewReader(body))
	require.NoError(r.t, err)
	req.SetBasicAuth(user, password)
	req.Header.Set("Content-Type", "application/json")
	code, _ := r.do(req)
	return code
}

// Two environments refused at once are one message, with the remedy. A silenced environment
// is in no message; its state and its entry are there.
func TestNotificationsAndSilences(t *testing.T) {
	t.Parallel()
	chat, generic := newReceiver(t), newReceiver(t)
	cfg := withEnvironments(testConfig(t.TempDir(), notifies("chat", "slack", chat), notifies("generic", "cloudevents", generic)), "live", "test", "stage", "busy")
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

	refused := cfg.Environments[:3]
	for _, e := range refused {
		require.Equal(t, http.StatusNoContent, r.pushAs(e.Environment, "a-password-of-"+e.Environment, 1))
	}
	require.Equal(t, http.StatusNoContent, r.pushAs("busy", "a-password-of-busy", 50), "a batch begins after it")
	var wrong sync.WaitGroup // wrong credentials are answered late
	for _, e := range refused {
		wrong.Go(func() { assert.Equal(t, http.StatusUnauthorized, r.pushAs(e.Environment, "wrong", 1)) })
	}
	wrong.Wait()
	waiting.Until(t, func() bool { return len(auditTypes(r, "health.changed")) == 3 }, "each has its event")
	assert.Empty(t, chat.got(), "they wait for more")
	require.Equal(t, http.StatusNoContent, r.pushAs("busy", "a-password-of-busy", 50))
	waiting.Until(t, func() bool { return len(chat.got()) > 0 && len(generic.got()) > 0 }, "there are notifications")
	for _, body := range auditTypes(r, "health.changed") {
		assert.Equal(t, strings.Contains(body, `"environment":"stage"`), strings.Contains(body, `"silenced":"`+added.ID), body)
	}
	assert.NotContains(t, strings.Join(append(chat.got(), generic.got()...), ""), "stage")
	var message struct{ Text string }
	require.NoError(t, json.Unmarshal([]byte(chat.got()[0]), &message))
	lines := strings.Split(message.Text, "\n")
	require.Len(t, lines, 4, message.Text)
	assert.Len(t, chat.got(), 1, "they are one message")
	for i, name := range []string{"live", "test"} {
		assert.Contains(t, lines[2*i], "critical: acme/"+name+" streaming_health: "+name+": event log is refused since 20")
		assert.Regexp(t, "^> to do: .+ https://.+/runbook/EnvironmentRefused.md$", lines[2*i+1])
	}
	var batch []struct {
		Type string
		Data struct {
			Detail struct{ Summary, Severity, Action, Since, Runbook string }
		}
	}
	require.NoError(t, json.Unmarshal([]byte(generic.got()[0]), &batch))
	require.NotEmpty(t, batch)
	d := batch[0].Data.Detail
	assert.Equal(t, "health.changed", batch[0].Type)
	assert.NotContains(t, []string{d.Summary, d.Severity, d.Action, d.Since, d.Runbook}, "")

	list, err := client.Silences(t.Context())
	require.NoError(t, err)
	require.Len(t, list, 1)
	assert.Equal(t, added, list[0])
	assert.Equal(t, "ann@desk", added.Person.Claimed)
	assert.NotEqual(t, "ann", added.Person.User, "the kernel says who it is")
	for _, e := range r.health()[:3] {
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
