package streaming

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/internal/workspace/management"
)

// Before, `{}` was "the event log goes nowhere": credentials were replaced while events
// arrived.
func TestAnImplausibleAnswerChangesNothing(t *testing.T) {
	t.Parallel()
	for name, config := range map[string]string{
		"an empty object":      `{}`,
		"null":                 `null`,
		"no destination":       `{"destination_type":"GRAFANA_LOKI","destination_config":{},"streaming_status":"ACTIVE"}`,
		"an empty destination": `{"destination_type":"GRAFANA_LOKI","destination_config":{"grafana_loki":{}},"streaming_status":"ACTIVE"}`,
		"no host name":         `{"destination_type":"GRAFANA_LOKI","destination_config":{"grafana_loki":{"hostname":null,"username":"u"}}}`,
		"nothing but a type":   `{"destination_type":"GRAFANA_LOKI"}`,
		"an array":             `[]`,
		"a text":               `"<html>"`,
		"a number":             `7`,
		"a status of no text":  `{"destination_type":"GRAFANA_LOKI","streaming_status":{}}`,
		"no config":            ``,
		"another type":         `{"destination_type":"DATADOG","destination_config":{"datadog":{"site":"US","api_key_last_four":"abcd"}},"streaming_status":"ACTIVE"}`,
		"a destination twice": `{"destination_type":"GRAFANA_LOKI","destination_config":{"grafana_loki":{"hostname":"evil.example.com"}},
			"destination_config":{"grafana_loki":{"hostname":"relay.example.com"}},"streaming_status":"ACTIVE"}`,
		"an unknown type": `{"destination_type":"SPLUNK","destination_config":{"splunk":{}},"streaming_status":"ACTIVE"}`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newRig(t)
			r, _ := g.start(nil, toRelay)
			require.NoError(t, look(t, r))
			puts := g.api.count()
			g.api.set(func() { g.api.answers = map[string]*string{"GRAFANA_LOKI": &config} })
			require.Error(t, look(t, r))
			again, _ := g.start(nil, toRelay)
			require.Error(t, look(t, again))
			changes, _ := g.trail.changes()
			assert.Len(t, changes, 1, "only the relay's own")
			assert.Equal(t, puts, g.api.count())
			assert.Equal(t, []string{"failed"}, g.trail.types()[4:], "the trail names the reads that fail")
			g.api.set(func() { g.api.answers = nil })
			require.NoError(t, look(t, again))
			assert.Equal(t, puts, g.api.count())
		})
	}
}

// An API may answer like this for a type that has no config. That means that there is none, as
// long as the trail knows of none, so that a first config can be set.
func TestAnEmptyAnswerMayBeNoConfigAtFirst(t *testing.T) {
	t.Parallel()
	empty := `{}`
	for _, desired := range []string{"GRAFANA_LOKI", "DATADOG"} {
		g := newRig(t)
		g.api.answers = map[string]*string{desired: &empty}
		g.api.answersUntilPut = true
		r, _ := g.start(nil, toRelay)
		require.NoError(t, look(t, r))
		assert.True(t, r.Health()[0].OK(), "%+v", r.Health()[0])
	}
}

// A server that ignores the type of a read shows the same config twice. That is only one
// config, of its own type.
func TestAServerThatIgnoresTheTypeMakesNoSecondConfig(t *testing.T) {
	t.Parallel()
	loki := `{"destination_type":"GRAFANA_LOKI","destination_config":{"grafana_loki":{"hostname":"loki.example.com","username":"u","password_last_four":"0001"}},"streaming_status":"ACTIVE"}`
	datadog := `{"destination_type":"DATADOG","destination_config":{"datadog":{"site":"US","api_key_last_four":"abcd"}},"streaming_status":"ACTIVE"}`
	splunk := `{"destination_type":"SPLUNK","destination_config":{"splunk":{}},"streaming_status":"ACTIVE"}`
	for config, ends := range map[string]management.DestinationType{loki: management.GrafanaLoki, datadog: management.Datadog, splunk: "SPLUNK"} {
		g := newRig(t)
		g.api.answers = map[string]*string{"GRAFANA_LOKI": &config, "DATADOG": &config}
		r, _ := g.start(func(o *Options) { o.DryRun = true }, toLoki)
		for range 2 {
			require.NoError(t, look(t, r))
		}
		assert.Equal(t, []string{"baseline"}, g.trail.types())
		assert.Equal(t, ends, r.Health()[0].DestinationType)
		assert.Equal(t, ends == management.GrafanaLoki, r.Health()[0].Finding == FindingNone)
	}
}

// A second config goes by a 404 only, too.
func TestASecondConfigIsNotGoneByAnEmptyAnswer(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	g.api.second = map[string]string{"site": "US"}
	r, _ := g.start(nil, toRelay)
	require.NoError(t, look(t, r))
	entered := strings.Count(strings.Join(g.trail.types(), " "), "changed")
	empty := `{}`
	g.api.set(func() { g.api.answers = map[string]*string{"DATADOG": &empty} })
	require.ErrorIs(t, look(t, r), errImplausible)
	assert.Equal(t, entered, strings.Count(strings.Join(g.trail.types(), " "), "changed"))
	g.api.set(func() { g.api.answers, g.api.second = nil, nil })
	require.NoError(t, look(t, r))
	assert.Equal(t, entered+1, strings.Count(strings.Join(g.trail.types(), " "), "changed"), "it is by a 404")
}

// Nobody is told of trouble between a first look and the PUT after it, however long it takes.
func TestAFirstStartIsNoTrouble(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	g.api.kind, g.api.fields, g.api.status = "DATADOG", map[string]string{"site": "US", "api_key": "k-1234"}, "ACTIVE"
	r, _ := g.start(nil, toRelay)
	var during Health
	g.api.beforePut = func() { during = r.Health()[0] }
	require.NoError(t, look(t, r))
	assert.Zero(t, during.Finding)
	assert.Zero(t, during.LastLook, "nothing is known yet")
	assert.True(t, r.Health()[0].OK())

	// A later change is told at once.
	g.api.set(func() { g.api.fields["hostname"] = "evil.example.com" })
	require.NoError(t, look(t, r))
	assert.Equal(t, FindingDiffers, during.Finding)

	// A PUT that fails leaves nothing untold.
	for _, status := range []int{500, 404} {
		g := newRig(t)
		g.api.failPut = status
		r, _ := g.start(nil, toRelay)
		require.Error(t, look(t, r))
		assert.NotZero(t, r.Health()[0].LastLook)
		assert.NotEmpty(t, r.Health()[0].Finding)
		assert.NotEqual(t, FindingNotTaken, r.Health()[0].Finding)
	}
}

// The advice after a refusal was followed: a person made the config. Before, the next look
// asked who changes it.
func TestAConfigMadeAsAdvisedIsNoFight(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	g.api.failPut = 404
	r, _ := g.start(nil, toRelay)
	require.Error(t, look(t, r))
	require.Equal(t, FindingRefused, r.Health()[0].Finding)
	var during Health
	g.api.set(func() {
		g.api.failPut, g.api.kind, g.api.status = 0, "GRAFANA_LOKI", "ACTIVE"
		g.api.fields = map[string]string{"hostname": "any.example.com", "username": "any", "password": "any-1234"}
		g.api.beforePut = func() { during = r.Health()[0] }
	})
	require.NoError(t, look(t, r))
	assert.Equal(t, FindingDiffers, during.Finding)
	assert.NotContains(t, during.Advice, "who changes it")
	for _, e := range g.trail.entries {
		assert.NotContains(t, string(e.Detail), "who changes it")
	}

	// Nor did the API take a PUT that failed for another reason.
	g.api.set(func() { g.api.failPut, g.api.fields["hostname"] = 500, "evil.example.com" })
	require.Error(t, look(t, r))
	require.Error(t, look(t, r))
	assert.Equal(t, FindingDiffers, r.Health()[0].Finding)
}

// PENDING goes by itself: there is nothing to enable.
func TestPendingIsNoReasonToEnableIt(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	r, _ := g.start(nil, toRelay)
	require.NoError(t, look(t, r))
	for status, advised := range map[string]bool{"PENDING": false, "DISABLED": true} {
		g.api.set(func() { g.api.status = status })
		require.NoError(t, look(t, r))
		assert.Equal(t, advised, strings.Contains(r.Health()[0].Advice, "enable it in the dashboard"), status)
		assert.Contains(t, r.Health()[0].Advice, status)
	}
}
