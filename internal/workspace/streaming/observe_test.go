package streaming

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/internal/workspace"
	"github.com/auditrelay/auditrelay/internal/workspace/management"
)

// TestAFalse404IsNoRemoval: before, each of these was signed as "after: null, cause:
// outside".
func TestAFalse404IsNoRemoval(t *testing.T) {
	t.Parallel()
	want := map[string]string{"a proxy's page": TypeFailed, "a removed environment": workspace.TypeGone}
	for name, fault := range map[string]func(*api){
		"a proxy's page":        func(a *api) { a.page = true },
		"a removed environment": func(a *api) { a.gone = true },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newRig(t)
			r, _ := g.start(nil, toRelay)
			require.NoError(t, look(t, r))
			recorded := len(g.trail.entries)
			g.api.set(func() { fault(g.api) })
			for range 2 {
				require.Error(t, look(t, r))
			}
			again, _ := g.start(nil, toRelay)
			require.Error(t, look(t, again))
			entered := g.trail.entries[recorded:]
			require.Len(t, entered, 1)
			assert.Equal(t, want[name], entered[0].Type)
			assert.Equal(t, 1, g.api.count(), "nothing is set where nothing was seen")
		})
	}
}

// TestARemovedConfigIsOne: the environment stands, and streams nowhere.
func TestARemovedConfigIsOne(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	r, _ := g.start(func(o *Options) { o.DryRun = true }, toRelay)
	g.api.set(func() {
		g.api.kind, g.api.fields, g.api.status = "GRAFANA_LOKI", map[string]string{"hostname": "h"}, "ACTIVE"
	})
	require.NoError(t, look(t, r))
	g.api.set(func() { g.api.kind = "" })
	for range 2 {
		require.NoError(t, look(t, r))
	}
	assert.Equal(t, []string{"baseline", "changed"}, g.trail.types())
	e, d := g.trail.newest()
	assert.Nil(t, e.After)
	assert.Equal(t, workspace.Outside(), d.Attribution)
}

// TestAnObservedEnvironment is read for both destination types, recorded, and left as
// it is.
func TestAnObservedEnvironment(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	r, _ := g.start(nil, nil)
	require.NoError(t, look(t, r))
	require.Equal(t, 3, g.api.asked, "both types, and a proof that the environment exists")
	for range 2 {
		require.NoError(t, look(t, r))
	}
	require.Equal(t, 3+2+2, g.api.asked, "what was proven, and is as before, needs no proof")
	g.api.set(func() { g.api.gone = true })
	require.Error(t, look(t, r))
	g.api.set(func() { g.api.gone = false })
	require.NoError(t, look(t, r))
	assert.Equal(t, []string{"baseline", "environment.gone", "environment.back"}, g.trail.types())
	g.api.set(func() { g.api.kind, g.api.fields, g.api.status = "DATADOG", map[string]string{"site": "US"}, "PENDING" })
	for range 2 {
		require.NoError(t, look(t, r))
	}
	g.api.set(func() { g.api.fields = map[string]string{"site": "EU"} })
	require.NoError(t, look(t, r))
	assert.Equal(t, []string{"changed", "changed"}, g.trail.types()[3:])
	assert.Zero(t, g.api.count())
	h := r.Health()[0]
	assert.True(t, h.OK() && h.Observed, "%+v", h)
	assert.Equal(t, management.StatusPending, h.Status)
	require.ErrorIs(t, rotate(t, r, "a"), ErrNotGenerated)
}

func TestLeftAlone(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	r, _ := g.start(func(o *Options) {
		o.Environments = []config.Environment{{Project: "shop", Environment: "a", SkipSettings: true}}
	}, nil)
	assert.Empty(t, r.Health())
}

// A second destination next to the relay's would carry every event elsewhere.
func TestASecondDestination(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	r, _ := g.start(nil, toRelay)
	require.NoError(t, look(t, r))
	g.api.set(func() { g.api.second = map[string]string{"site": "EU", "api_key": "0123456789abcdef"} })
	for range 2 {
		require.NoError(t, look(t, r))
	}
	assert.Equal(t, pointed("changed"), g.trail.types())
	e, d := g.trail.newest()
	assert.Equal(t, SubjectSecond, e.Subject)
	assert.Contains(t, string(e.After), `"site":"EU"`)
	assert.Equal(t, "the event log now goes to `Datadog EU`, and 1 more change", d.Summary)
	assert.NotContains(t, string(e.After), "0123456789abcdef", "a server that forgets to mask")
	assert.Equal(t, workspace.Outside(), d.Attribution)

	g.api.set(func() { g.api.garbled = true })
	for range 2 {
		require.Error(t, look(t, r))
	}
	assert.Equal(t, pointed("changed", "failed"), g.trail.types(), "a read that fails is no removal")
	assert.Equal(t, FindingNone, r.Health()[0].Finding, "and the relay's own config is seen all the same")
	g.api.set(func() { g.api.garbled, g.api.second = false, nil })
	require.NoError(t, look(t, r))
	assert.Equal(t, pointed("changed", "failed", "changed", "recovered"), g.trail.types())
	changes, _ := g.trail.changes()
	assert.Equal(t, SubjectSecond, changes[2].Subject)
	assert.Nil(t, changes[2].After)
	assert.Equal(t, 1, g.api.count())
}

// TestALostAnswerIsTheRelaysChange: a destination of the operator's own has no
// credential to recognise it by.
func TestALostAnswerIsTheRelaysChange(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	r, _ := g.start(nil, &config.Stream{Datadog: &config.StreamDatadog{Site: "EU", APIKey: datadogKey}})
	g.api.set(func() { g.api.lose = true })
	require.Error(t, look(t, r))
	g.api.set(func() { g.api.lose = false })
	require.NoError(t, look(t, r))
	_, d := g.trail.newest()
	assert.Equal(t, workspace.CauseRelay, d.Cause)
	assert.Len(t, d.Action, 26)
	g.api.set(func() { g.api.fields["site"] = "US" })
	require.NoError(t, look(t, r))
	_, causes := g.trail.changes()
	assert.Equal(t, []string{"relay", "outside", "relay"}, causes)
}

// TestTheLooksAreAttested with the number of reads of each config, its hash, and the
// parts hidden by the API.
func TestTheLooksAreAttested(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	r, _ := g.start(nil, toRelay)
	w := r.watchers[0]
	for range 3 {
		require.NoError(t, w.checkedLook(t.Context()))
	}
	g.api.set(func() { g.api.failRead = 500 })
	require.Error(t, w.checkedLook(t.Context()))
	assert.NotContains(t, g.trail.types(), "checked", "the first is due a day after the first look")
	w.attestLast(t.Context())
	w.attestLast(t.Context())
	e, _ := g.trail.newest()
	require.Equal(t, TypeChecked, e.Type)
	c := workspace.CheckOf(e)
	config, _, err := g.trail.Last(t.Context(), "shop", "a", Subject)
	require.NoError(t, err)
	assert.Equal(t, 4, c.Looks)
	got := c.Resources[Subject]
	assert.Equal(t, workspace.HashOf(config.After), got.SHA256)
	assert.Equal(t, []int{3, 1}, []int{got.Looks, got.Failures})
	assert.Equal(t, "1h0m0s", got.Every)
	assert.NotEmpty(t, got.Requests)
	assert.Equal(t, 3, c.Resources[SubjectSecond].Looks)
	assert.Contains(t, c.NotShown, "who made a change")
	checked := 0
	for _, kind := range g.trail.types() {
		if kind == "checked" {
			checked++
		}
	}
	assert.Equal(t, 1, checked, "nothing is attested twice")

	g.api.set(func() { g.api.failRead, g.api.status = 0, "DISABLED" })
	again, _ := g.start(nil, toRelay)
	require.NoError(t, look(t, again))
	e, _, err = g.trail.Last(t.Context(), "shop", "a", Subject)
	require.NoError(t, err)
	var d detail
	require.NoError(t, json.Unmarshal(e.Detail, &d))
	assert.Equal(t, TypeStatusChanged, e.Type)
	assert.Equal(t, got.Requests, d.Requests.Before, "after a restart, the change is after the last attested look")
	assert.True(t, got.LastLook.Equal(e.Window.After))
}
