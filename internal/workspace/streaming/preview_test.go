package streaming

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/internal/ingest/credentials"
	"github.com/auditrelay/auditrelay/internal/trail/audit"
	"github.com/auditrelay/auditrelay/internal/workspace"
)

var shopA = credentials.Environment{Project: "shop", Environment: "a"}

// observing has the environments in mode observe.
func observing(o *Options) {
	for i := range o.Environments {
		o.Environments[i].Mode = config.ModeObserve
	}
}

// An environment in mode observe is compared, and set when a person asks, once: the trail
// names the person at the PUT and at the change.
func TestAnObservingEnvironmentIsSetOnRequestOnly(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	r, _ := g.start(observing, toRelay, nil)
	for range 2 {
		require.NoError(t, look(t, r))
	}
	assert.Zero(t, g.api.count())
	h := r.Health()[0]
	assert.Equal(t, []string{config.ModeObserve, string(FindingDiffers)}, []string{h.Mode, string(h.Finding)})
	assert.Contains(t, h.Advice, "auditrelay streaming apply shop/a")

	before, err := r.Plan(t.Context(), shopA)
	require.NoError(t, err)
	assert.True(t, before.Differs)
	assert.Equal(t, []Field{
		{"destination_type", "", "GRAFANA_LOKI", true},
		{"hostname", "", "relay.example.com", true},
		{"username", "", shopA.Username(), true},
		{"secret", "", newSecret, true},
	}, before.Fields)
	assert.Equal(t, []string{"baseline"}, g.trail.types(), "a plan records nothing")

	after, err := r.Apply(t.Context(), shopA, workspace.Person{User: "ada", Host: "desk"}, "CHG-1")
	require.NoError(t, err)
	assert.False(t, after.Differs)
	password := g.api.sent()[0]
	assert.Equal(t, Field{"secret", "…" + password[39:], "…" + password[39:], false}, after.Fields[3])
	shown, err := json.Marshal(after)
	require.NoError(t, err)
	assert.NotContains(t, string(shown), password)
	assert.Equal(t, pointed(), g.trail.types())
	p, d := attemptOf(g.trail.entries[1]), detail{}
	require.NoError(t, json.Unmarshal(g.trail.entries[3].Detail, &d))
	assert.Equal(t, []string{"relay", "ada@desk", p.Action, "ada@desk"}, []string{p.Cause, p.Actor, d.Action, d.Actor})
	assert.Equal(t, "CHG-1", p.Why)
	assert.Equal(t, "CHG-1", attemptOf(g.trail.entries[2]).Why, "the entry of the end")
	assert.Equal(t, []string{"destination_type", "asked_for"}, d.Reason)

	g.api.set(func() { g.api.fields["hostname"] = "else.example.com" })
	require.NoError(t, look(t, r))
	assert.Equal(t, 1, g.api.count(), "once")
	_, err = r.Plan(t.Context(), credentials.Environment{Project: "shop", Environment: "b"})
	require.ErrorIs(t, err, ErrNotDesired)
	_, err = r.Apply(t.Context(), credentials.Environment{Project: "nobody", Environment: "b"}, workspace.Person{}, "")
	require.ErrorIs(t, err, ErrNotDesired)
}

// Mode observe sets nothing by itself: not for a lost credential, while the trail is down, nor
// by age.
func TestAnObservingEnvironmentIsNeverMended(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	r, store := g.start(nil, toRelay)
	require.NoError(t, look(t, r))
	store.Close()
	every := func(o *Options) { observing(o); o.RotateEvery = time.Nanosecond }
	r, store = g.start(every, toRelay)
	require.NoError(t, look(t, r))
	store.Close()
	g.table = newTable(t)
	g.trail.broken = audit.ErrUnavailable
	r, _ = g.start(every, toRelay)
	g.api.set(func() { g.api.status = "DISABLED" }) // to be recorded
	require.ErrorIs(t, look(t, r), audit.ErrUnavailable)
	assert.Equal(t, 1, g.api.count(), "before mode observe")
}

// A rotation does not repoint a stream that is to stay where it is.
func TestARotationRepointsNothingInModeObserve(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	g.api.kind, g.api.fields, g.api.status = "GRAFANA_LOKI", map[string]string{"hostname": "theirs.example.com"}, "ACTIVE"
	r, _ := g.start(observing, toRelay)
	require.ErrorIs(t, rotate(t, r, "a"), ErrElsewhere)
	assert.Zero(t, g.api.count())
	_, err := r.Apply(t.Context(), shopA, workspace.Person{}, "")
	require.NoError(t, err)
	require.NoError(t, rotate(t, r, "a"))
	assert.Equal(t, 2, g.api.count())
}

// A rotation overwrites nothing that is not in the trail.
func TestARotationRecordsFirst(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	r, _ := g.start(nil, toRelay)
	require.NoError(t, look(t, r))
	g.api.set(func() { g.api.fields["hostname"] = "thief.example.com" })
	require.NoError(t, rotate(t, r, "a"))
	changes, causes := g.trail.changes()
	assert.Equal(t, []string{"relay", "outside", "relay"}, causes)
	assert.Contains(t, string(changes[1].After), "thief.example.com")

	again, _ := g.start(nil, toRelay) // has not looked yet
	g.api.set(func() { g.api.failPut = 400 })
	require.ErrorContains(t, rotate(t, again, "a"), "correct its stream in the configuration", "there is a config")
}

// The answer of a person's PUT is lost: the next look knows the change for the person's.
func TestALostAnswerIsThePersonsChange(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	g.api.lose = true
	r, _ := g.start(observing, toLoki)
	_, err := r.Apply(t.Context(), shopA, workspace.Person{User: "ada", Host: "desk"}, "CHG-1")
	require.ErrorContains(t, err, "the API may have set the config all the same")
	again, _ := g.start(observing, toLoki)
	require.NoError(t, look(t, again))
	_, d := g.trail.newest()
	assert.Equal(t, "ada@desk", d.Actor)
	assert.Equal(t, 1, g.api.count())
}

// A refused request leaves a config as it was, and a person with advice.
func TestARefusedRequestIsNoFinding(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	r, _ := g.start(nil, toRelay)
	require.NoError(t, look(t, r))
	g.api.set(func() { g.api.failPut = 403 })
	_, err := r.Apply(t.Context(), shopA, workspace.Person{}, "")
	require.ErrorContains(t, err, "the rights of the management key")
	require.ErrorContains(t, rotate(t, r, "a"), "the rights of the management key")
	assert.Empty(t, r.Health()[0].Finding, "it is as desired")
	g.api.set(func() { g.api.failRead = 403 })
	require.ErrorContains(t, look(t, r), "give the management key the right to read it")
}

func TestADryRunAppliesNothing(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	r, _ := g.start(func(o *Options) { o.DryRun = true }, toLoki)
	p, err := r.Plan(t.Context(), shopA)
	require.NoError(t, err)
	assert.Equal(t, Field{"secret", "", "…0001", true}, p.Fields[3])
	_, err = r.Apply(t.Context(), shopA, workspace.Person{}, "")
	require.ErrorIs(t, err, ErrDryRun)
	assert.Zero(t, g.api.count())
}

// rotate rotates the credential of an environment of the shop, as ada asks.
func rotate(t *testing.T, r *Reconciler, environment string) error {
	t.Helper()
	return r.Rotate(t.Context(), credentials.Environment{Project: "shop", Environment: environment}, workspace.Person{User: "ada", Host: "desk"}, "CHG-2")
}
