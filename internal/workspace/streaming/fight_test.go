package streaming

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/config"
)

// undo is the act of somebody else.
func (g *rig) undo(n int) {
	g.api.set(func() { g.api.fields["hostname"] = fmt.Sprintf("other-%d.example.com", n) })
}

// Somebody undoes each PUT. Before, 13 changes got 13 PUTs in 24 seconds, and no word.
func TestAFightIsReportedAndBackedOff(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	var logs bytes.Buffer
	registry := prometheus.NewRegistry()
	r, _ := g.start(func(o *Options) {
		o.Logger, o.Registerer = slog.New(slog.NewTextHandler(&logs, nil)), registry
	}, toRelay)
	require.NoError(t, look(t, r))
	for n := range 13 {
		g.undo(n)
		require.NoError(t, look(t, r))
	}
	assert.Equal(t, fightAfter, g.api.count())
	h := r.Health()[0]
	require.NotNil(t, h.Fight)
	assert.False(t, h.OK())
	assert.Equal(t, []any{3, "other-2.example.com"}, []any{h.Fight.Undone, h.Fight.Theirs.Hostname})
	assert.True(t, time.Until(h.Fight.NextPut) > 0 && time.Until(h.Fight.NextPut) <= firstTruce)
	assert.Equal(t, 1, strings.Count(logs.String(), "sets the streaming config again and again"))
	assert.Equal(t, 1, g.trail.count(TypeFight))
	require.NoError(t, testutil.GatherAndCompare(registry, strings.NewReader(`
# HELP auditrelay_streaming_fight 1 while somebody else sets the streaming config again and again, else 0.
# TYPE auditrelay_streaming_fight gauge
auditrelay_streaming_fight{environment="a",project="shop"} 1
`), "auditrelay_streaming_fight"))

	// A restart forgets nothing: the trail tells of the fight, and when to try again.
	for i, step := range []struct {
		pass time.Duration
		puts int
	}{{50 * time.Second, 3}, {10 * time.Second, 4}, {time.Minute, 4}, {time.Minute, 5}, {3 * time.Minute, 5}, {time.Minute, 6}} {
		g.trail.age(step.pass)
		r, _ = g.start(nil, toRelay)
		g.undo(100 + i)
		require.NoError(t, look(t, r))
		assert.Equal(t, step.puts, g.api.count(), "step %d: after %v more", i, step.pass)
		assert.NotNil(t, r.Health()[0].Fight)
	}

	// The others have given up.
	g.trail.age(stands - time.Minute)
	require.NoError(t, look(t, r))
	assert.Equal(t, FindingNone, r.Health()[0].Finding)
	assert.NotNil(t, r.Health()[0].Fight, "not long enough")
	g.trail.age(time.Minute)
	r, _ = g.start(nil, toRelay)
	for range 2 {
		require.NoError(t, look(t, r))
	}
	assert.True(t, r.Health()[0].OK())
	assert.Equal(t, []int{1, 1}, []int{g.trail.count(TypeFight), g.trail.count(TypeFightEnded)})
	for _, e := range g.trail.of(subjectFight) {
		var d fightDetail
		require.NoError(t, json.Unmarshal(e, &d))
		assert.NotEmpty(t, d.Summary)
		assert.GreaterOrEqual(t, d.Undone, fightAfter)
	}

	// A change later on is mended at once.
	g.undo(1000)
	require.NoError(t, look(t, r))
	assert.Equal(t, 7, g.api.count())
	assert.Nil(t, r.Health()[0].Fight)
}

// Changes that are hours apart are no fight, nor is another desired config.
func TestNoFight(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	r, _ := g.start(nil, toLoki)
	require.NoError(t, look(t, r))
	for n := range 5 {
		g.trail.age(stands + time.Minute)
		g.undo(n)
		require.NoError(t, look(t, r))
	}
	for n := range 5 {
		r, _ = g.start(nil, []*config.Stream{toAnother, toLoki}[n%2])
		require.NoError(t, look(t, r))
	}
	assert.Equal(t, 1+5+5, g.api.count())
	assert.Zero(t, g.trail.count(TypeFight))
}

func (tr *trail) count(kind string) (n int) {
	for _, t := range tr.types() {
		if "streaming."+t == kind {
			n++
		}
	}
	return n
}

// of are the details of a subject's entries.
func (tr *trail) of(subject string) (all []json.RawMessage) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	for _, e := range tr.entries {
		if e.Subject == subject {
			all = append(all, e.Detail)
		}
	}
	return all
}
