package streaming

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/config/secret"
	"github.com/auditrelay/auditrelay/internal/trail/audit"
	"github.com/auditrelay/auditrelay/internal/workspace"
	"github.com/auditrelay/auditrelay/internal/workspace/management"
	"github.com/auditrelay/auditrelay/internal/workspace/meaning"
)

var toRelay = &config.Stream{Relay: &config.StreamRelay{Hostname: "relay.example.com"}}

var datadogKey = secret.New("datadog-key-0001")

// look is one turn of the first environment's loop.
func look(t *testing.T, r *Reconciler) error {
	t.Helper()
	w := r.watchers[0]
	err := w.inTurn(t.Context(), w.look)
	w.ended(err)
	return err
}

// pointed are the entries of an environment pointed at the relay, and more.
func pointed(more ...string) []string {
	return append([]string{"baseline", "put_intended", "put_ended", "changed"}, more...)
}

func TestPointsAnEnvironmentAtTheRelay(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	r, store := g.start(nil, toRelay)
	require.NoError(t, look(t, r))
	assert.Equal(t, "relay.example.com", g.api.field("hostname"))
	env, ok := store.Basic(g.api.field("username"), g.api.field("password"))
	assert.True(t, ok && env.Environment == "a")
	assert.Equal(t, pointed(), g.trail.types())
	e, d := g.trail.newest()
	assert.Nil(t, e.Before)
	assert.Contains(t, string(e.After), `"later_field":1`, "what is not known is kept")
	assert.Equal(t, detail{Attribution: workspace.ByRelay(d.Action), Reason: []string{"destination_type"}, Fields: []string{
		"destination_config", "destination_type", "later_field", "streaming_status",
	}}, withoutPaths(t, d))
	assert.Len(t, d.Action, 26)
	h := r.Health()[0]
	assert.True(t, h.OK(), "%+v", h)
	assert.Equal(t, management.StatusActive, h.Status)
	assert.Equal(t, "GRAFANA_LOKI relay.example.com", string(h.DestinationType)+" "+h.Destination)
	assert.False(t, h.LastChange.IsZero())

	for range 3 {
		require.NoError(t, look(t, r))
	}
	again, _ := g.start(nil, toRelay)
	require.NoError(t, look(t, again))
	assert.Len(t, g.trail.types(), 4, "an unchanged config adds nothing, after a restart either")
	assert.Equal(t, 1, g.api.count())
}

// withoutPaths keeps the top of each field's path. The request ids are of both reads.
func withoutPaths(t *testing.T, d detail) detail {
	t.Helper()
	assert.Len(t, d.Requests.After, 1)
	assert.NotEqual(t, d.Requests.Before, d.Requests.After)
	d.Requests = workspace.Requests{}
	assert.NotEmpty(t, d.Reading)
	d.Reading = nil
	var fields []string
	for _, f := range d.Fields {
		top, _, _ := bytes.Cut([]byte(f), []byte("."))
		if len(fields) == 0 || fields[len(fields)-1] != string(top) {
			fields = append(fields, string(top))
		}
	}
	d.Fields = fields
	return d
}

func TestMendsDriftAndRecordsBoth(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	r, _ := g.start(nil, toRelay)
	require.NoError(t, look(t, r))
	before := time.Now()
	g.api.set(func() { g.api.fields["hostname"] = "elsewhere.example.com" })
	require.NoError(t, look(t, r))
	assert.Equal(t, pointed("changed", "put_intended", "put_ended", "changed"), g.trail.types())
	drift := g.trail.entries[4]
	var d detail
	require.NoError(t, json.Unmarshal(drift.Detail, &d))
	assert.Equal(t, detail{Attribution: workspace.Outside(), Fields: []string{"destination_config"}}, withoutPaths(t, d))
	assert.Equal(t, []string{"destination_config.grafana_loki.hostname"}, d.Fields)
	assert.Equal(t, "the event log now goes to `elsewhere.example.com`, it went to `relay.example.com`", d.Summary)
	assert.Equal(t, []any{meaning.Weaker, meaning.Critical, 1}, []any{d.Direction, d.Severity, len(d.Statements)})
	assert.Contains(t, string(drift.After), "elsewhere")
	assert.True(t, drift.Window.After.Before(before) && drift.Window.Until.After(before), "the change lies in its window")
	e, d := g.trail.newest()
	assert.Equal(t, workspace.CauseRelay, d.Cause)
	assert.Equal(t, drift.After, e.Before)
	assert.Equal(t, []string{"hostname"}, d.Reason)
	assert.Equal(t, "relay.example.com", g.api.field("hostname"))
}

func TestStatusIsAFindingAndAnEntry(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	r, _ := g.start(nil, toRelay)
	require.NoError(t, look(t, r))
	g.api.set(func() { g.api.status = "HIBERNATING" })
	require.NoError(t, look(t, r))
	h := r.Health()[0]
	assert.Equal(t, FindingNotActive, h.Finding)
	assert.Equal(t, management.StreamingStatus("HIBERNATING"), h.Status)
	assert.False(t, h.OK())
	assert.Equal(t, pointed("status_changed"), g.trail.types())
	e, _ := g.trail.newest()
	assert.Contains(t, string(e.Before), "ACTIVE")
	_, d := g.trail.newest()
	assert.Contains(t, d.Advice, "enable it in the dashboard")
	assert.Equal(t, d.Advice, h.Advice)
	d.Advice = ""
	assert.Equal(t, detail{Attribution: workspace.Outside(), Fields: []string{"streaming_status"}}, withoutPaths(t, d))
	assert.Equal(t, 1, g.api.count(), "a status is nothing that a PUT mends")
}

func TestDryRunChangesNothing(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	r, store := g.start(func(o *Options) { o.DryRun = true }, toRelay)
	require.NoError(t, look(t, r))
	assert.Zero(t, g.api.count())
	assert.Equal(t, FindingDiffers, r.Health()[0].Finding)
	st, err := store.State(r.watchers[0].environment())
	require.NoError(t, err)
	assert.Empty(t, st.Pending)
	require.ErrorIs(t, rotate(t, r, "a"), ErrDryRun)
}

// A PUT whose answer is lost has the same effect as a crash right after the PUT.
func TestCrashAfterThePut(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	r, _ := g.start(nil, toRelay)
	g.api.set(func() { g.api.lose = true })
	require.Error(t, look(t, r))
	assert.Equal(t, []string{"baseline", "put_intended", "put_failed"}, g.trail.types())

	again, store := g.start(nil, toRelay)
	_, ok := store.Basic(g.api.field("username"), g.api.field("password"))
	assert.True(t, ok, "accepted before it is promoted")
	require.NoError(t, look(t, again))
	assert.Equal(t, 1, g.api.count(), "what arrived is not set again")
	assert.Equal(t, []string{"baseline", "put_intended", "put_failed", "changed"}, g.trail.types())
	_, d := g.trail.newest()
	assert.Equal(t, "relay", d.Cause)
	st, err := store.State(again.watchers[0].environment())
	require.NoError(t, err)
	assert.Equal(t, g.api.field("password")[39:], st.Current)
	assert.Empty(t, st.Pending)
}

func TestCrashBeforeThePut(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	r, store := g.start(nil, toRelay)
	require.NoError(t, look(t, r))
	_, err := store.Prepare(t.Context(), r.watchers[0].environment())
	require.NoError(t, err)

	again, store := g.start(nil, toRelay)
	require.NoError(t, look(t, again))
	st, err := store.State(again.watchers[0].environment())
	require.NoError(t, err)
	assert.Empty(t, st.Pending, "what the API does not show is dropped")
	assert.Equal(t, g.api.field("password")[39:], st.Current)
	assert.Equal(t, 1, g.api.count())
}

func TestNothingIsSetWhileTheTrailIsDown(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	g.trail.broken = errors.New("disk full")
	r, _ := g.start(nil, toRelay)
	require.ErrorContains(t, look(t, r), "disk full")
	assert.Zero(t, g.api.count())
	assert.Contains(t, r.Health()[0].LastError, "disk full")
	g.trail.broken = nil
	require.NoError(t, look(t, r))
	assert.Equal(t, pointed(), g.trail.types())
}

func TestRotation(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	r, store := g.start(nil, toRelay, &config.Stream{Datadog: &config.StreamDatadog{Site: "US"}})
	require.NoError(t, look(t, r))
	user, old := g.api.field("username"), g.api.field("password")
	require.NoError(t, rotate(t, r, "a"))
	assert.NotEqual(t, old, g.api.field("password"))
	for _, password := range []string{old, g.api.field("password")} {
		_, ok := store.Basic(user, password)
		assert.True(t, ok)
	}
	e, d := g.trail.newest()
	assert.Equal(t, TypeChanged, e.Type)
	assert.Equal(t, detail{
		Attribution: workspace.ByPerson(d.Action, "ada@desk"), Reason: []string{"rotation"}, Fields: []string{"destination_config"},
	}, withoutPaths(t, d))
	assert.Equal(t, []string{"destination_config.grafana_loki.password_last_four"}, d.Fields)
	require.NoError(t, look(t, r))
	assert.Equal(t, 2, g.api.count())
	assert.True(t, r.Health()[0].OK())
	require.ErrorIs(t, rotate(t, r, "b"), ErrNotGenerated)
	require.ErrorIs(t, rotate(t, r, "c"), ErrNotGenerated)
}

func TestWhatIsNeverTakenIsNotSetAgainAndAgain(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	g.api.rewrite = func(fields map[string]string) { fields["hostname"] = "proxy.example.com" }
	r, store := g.start(nil, toRelay)
	for range 10 {
		require.NoError(t, look(t, r))
	}
	assert.Equal(t, 1, g.api.count())
	h := r.Health()[0]
	assert.Equal(t, FindingNotTaken, h.Finding)
	assert.Equal(t, []string{"hostname"}, h.Differs)
	assert.Equal(t, pointed(), g.trail.types())
	st, err := store.State(r.watchers[0].environment())
	require.NoError(t, err)
	assert.Equal(t, g.api.field("password")[39:], st.Current, "the credential that it pushes with is marked all the same")

	r.watchers[0].nextPut = time.Time{}
	require.NoError(t, look(t, r))
	assert.Equal(t, 2, g.api.count())
	assert.Equal(t, 2, r.watchers[0].puts, "the next wait is longer")

	g.api.set(func() { g.api.fields["hostname"] = "relay.example.com" })
	require.NoError(t, look(t, r))
	assert.True(t, r.Health()[0].OK())
	assert.Zero(t, r.watchers[0].puts)
}

func TestA2xxThatCannotBeReadIsOne(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	g.api.garble = true
	r, _ := g.start(nil, toRelay)
	require.NoError(t, look(t, r))
	assert.True(t, r.Health()[0].OK())
	assert.Equal(t, pointed(), g.trail.types())
}

func TestARefusedPutIsSpacedOutAndStaysVisible(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	g.api.failPut = 400
	r, _ := g.start(nil, toRelay)
	for range 5 {
		require.ErrorContains(t, look(t, r), "400")
	}
	assert.Equal(t, 1, g.api.count())
	assert.Contains(t, r.Health()[0].LastError, "400")
	assert.Equal(t, []string{"baseline", "put_intended", "put_failed"}, g.trail.types())
	e, _ := g.trail.newest()
	assert.Contains(t, string(e.Detail), `"actor":"relay","reason":["destination_type"],"failure":"HTTP 400 fault","error":"set event log streaming: `)
	assert.Contains(t, string(e.Detail), `"request_id":"r-`)
}

func TestGivenDestinations(t *testing.T) {
	t.Parallel()
	for name, s := range map[string]*config.Stream{
		"datadog": {Datadog: &config.StreamDatadog{Site: "EU", APIKey: datadogKey}},
		"loki":    {GrafanaLoki: &config.StreamGrafanaLoki{Hostname: "loki.example.com", Username: "u", Password: secret.New("loki-password-0001")}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newRig(t)
			r, _ := g.start(nil, toRelay)
			require.NoError(t, look(t, r))
			r, _ = g.start(nil, s)
			require.NoError(t, look(t, r))
			require.NoError(t, look(t, r))
			assert.Equal(t, 2, g.api.count())
			e, _ := g.trail.newest()
			assert.Contains(t, string(e.Before), "relay.example.com", "what was replaced, of whatever type")
			assert.Contains(t, string(e.After), "0001")
			assert.True(t, r.Health()[0].OK())
		})
	}
}

func TestSecretsAreNowhere(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	var logs bytes.Buffer
	registry := prometheus.NewRegistry()
	r, _ := g.start(func(o *Options) {
		o.Logger = slog.New(slog.NewJSONHandler(&logs, &slog.HandlerOptions{Level: slog.LevelDebug}))
		o.Registerer = registry
	}, toRelay)
	require.NoError(t, look(t, r))
	g.api.set(func() { g.api.failRead = 500 })
	require.Error(t, look(t, r))
	g.api.set(func() { g.api.failRead = 0 })
	require.NoError(t, rotate(t, r, "a"))
	entries, err := json.Marshal(g.trail.entries)
	require.NoError(t, err)
	sent := g.api.sent()
	require.Len(t, sent, 2)
	for _, s := range append(sent, "management-secret") {
		assert.NotContains(t, string(entries), s)
		assert.NotContains(t, logs.String(), s)
	}
	n, err := testutil.GatherAndCount(registry)
	require.NoError(t, err)
	assert.Positive(t, n)
}

func TestTwoRelaysRecordAChangeOnce(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	a, _ := g.start(nil, toRelay)
	require.NoError(t, look(t, a))
	b, _ := g.start(nil, toRelay)
	require.NoError(t, look(t, b))
	g.api.set(func() { g.api.status = "PENDING" })
	g.trail.race = func() { require.NoError(t, look(t, b)) }
	require.NoError(t, look(t, a))
	assert.Equal(t, pointed("status_changed"), g.trail.types())
}

func TestChangedFields(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		before, after string
		want          []string
	}{
		{`{"a":1}`, `{"a":1}`, nil},
		{`{"a":{"b":1,"c":[1,2]}}`, `{"a":{"b":1,"c":[2,1]},"d":null}`, []string{"a.c.0", "a.c.1", "d"}},
		{``, `{"a":{"b":1}}`, []string{"a"}},
		{`{"a":{"b":1}}`, `{"a":2}`, []string{"a"}},
	} {
		got, err := compare(Subject, json.RawMessage(tc.before), json.RawMessage(tc.after))
		require.NoError(t, err)
		assert.Equal(t, tc.want, changedFields(got.Changes), "%v", tc)
	}
	_, err := compare(Subject, json.RawMessage(`{`), nil)
	require.ErrorContains(t, err, "compare with the trail")
}

// Nothing is known any more of the credential that the API has, and the trail cannot
// be used: a new one is set all the same, once, as every push is refused.
func TestALostCredentialIsReplacedAtOnce(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	r, store := g.start(nil, toRelay)
	require.NoError(t, look(t, r))
	lost := g.api.field("password")
	store.Close()
	g.table = newTable(t)
	g.trail.broken = fmt.Errorf("%w: no key", audit.ErrUnavailable)
	r, store = g.start(nil, toRelay)
	for range 3 {
		require.ErrorIs(t, look(t, r), audit.ErrUnavailable)
	}
	require.NotEqual(t, lost, g.api.field("password"))
	_, ok := store.Basic(g.api.field("username"), g.api.field("password"))
	require.True(t, ok)
	require.Equal(t, 2, g.api.count(), "one PUT before, one now")

	g.trail.broken = nil
	require.NoError(t, look(t, r))
	e, _ := g.trail.newest()
	require.Equal(t, TypeChanged, e.Type, "the trail has it as soon as it can")
}
