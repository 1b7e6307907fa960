package streaming

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/internal/workspace/meaning"
)

// lastReadings are the severities of the newest changes of the config.
func (g *rig) lastReadings(n int) (all []meaning.Severity) {
	g.t.Helper()
	changes, _ := g.trail.changes()
	for _, e := range changes[len(changes)-n:] {
		var d detail
		require.NoError(g.t, json.Unmarshal(e.Detail, &d))
		require.NotNil(g.t, d.Reading)
		all = append(all, d.Severity)
	}
	return all
}

// A rule for critical changes rings once for an attack, and not once more for the relay's
// own remedy.
func TestAnAttackRingsOnce(t *testing.T) {
	t.Parallel()
	for name, remedy := range map[string]func(*testing.T, *rig, *Reconciler){
		"at once": func(t *testing.T, _ *rig, r *Reconciler) { require.NoError(t, look(t, r)) },
		"after a restart": func(t *testing.T, g *rig, _ *Reconciler) {
			again, _ := g.start(nil, toRelay)
			require.NoError(t, look(t, again))
		},
		"after a lost answer": func(t *testing.T, g *rig, r *Reconciler) {
			g.api.set(func() { g.api.lose = true })
			require.Error(t, look(t, r))
			g.api.set(func() { g.api.lose = false })
			require.NoError(t, look(t, r))
		},
		"after a refusal, and a restart": func(t *testing.T, g *rig, r *Reconciler) {
			g.api.set(func() { g.api.failPut = 409 })
			require.Error(t, look(t, r))
			g.api.set(func() { g.api.failPut = 0 })
			again, _ := g.start(nil, toRelay)
			require.NoError(t, look(t, again))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newRig(t)
			r, _ := g.start(nil, toRelay)
			require.NoError(t, look(t, r))
			g.api.set(func() { g.api.fields["hostname"] = "evil.example.com" })
			remedy(t, g, r)
			assert.Equal(t, []meaning.Severity{meaning.Critical, meaning.Low}, g.lastReadings(2))
			_, d := g.trail.newest()
			assert.Equal(t, meaning.Stronger, d.Direction)
			assert.Contains(t, d.Summary, "again, as before; in between it went to `evil.example.com`")
		})
	}
}

// Another destination in the relay's own configuration is a move like any other: an insider
// may have written it.
func TestAMoveByTheConfigurationIsNoRestoration(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	for _, to := range []*config.Stream{toLoki, toAnother, toLoki} {
		r, _ := g.start(nil, to)
		require.NoError(t, look(t, r))
	}
	assert.Equal(t, []meaning.Severity{meaning.High, meaning.Critical, meaning.Critical}, g.lastReadings(3))
}
