package main

import (
	"encoding/json"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/internal/app"
	"github.com/auditrelay/auditrelay/internal/journal"
	"github.com/auditrelay/auditrelay/internal/store/lease"
	"github.com/auditrelay/auditrelay/internal/testbed/rig"
	"github.com/auditrelay/auditrelay/internal/testbed/waiting"
	"github.com/auditrelay/auditrelay/internal/trail/proof"
	"github.com/auditrelay/auditrelay/internal/trail/verify"
)

// A finding counts against the round after which it was found, and not against those that follow.
func TestAFindingIsOfOneRound(t *testing.T) {
	t.Parallel()
	j := newJudge(&scene{sinks: map[string]*receiver{}, fence: &fence{}})
	of := changed{"p", "e", "rbac_policy"}
	for _, name := range sinkNames {
		j.sinks[name] = newReceiver()
		j.sinks[name].change[of] = 1
	}
	j.changes[of] = 1
	at := func(position uint64) error {
		return j.forward(&app.ClusterStatus{Jobs: []app.JobStatus{{Job: lease.Job{Name: "sink/a/1"}, Position: &journal.SinkPosition{Sink: "a", Acknowledged: position}}}})
	}
	calm := func(position uint64) {
		t.Helper()
		require.NoError(t, j.entered(t.Context()))
		require.NoError(t, j.fenced(t.Context(), &round{}))
		require.NoError(t, at(position))
	}
	calm(7)
	j.sinks[sinkNames[1]].change[of] = 2
	j.fence.trespass = append(j.fence.trespass, "one")
	require.ErrorContains(t, j.entered(t.Context()), "TWICE")
	require.ErrorContains(t, j.fenced(t.Context(), &round{}), "MOVED")
	require.ErrorContains(t, at(5), "sink/a/1 went back from 7 to 5")
	calm(6)
	j.sinks[sinkNames[1]].change[of] = 3
	j.fence.trespass = append(j.fence.trespass, "two")
	require.ErrorContains(t, j.entered(t.Context()), "has 3 entries")
	err := j.fenced(t.Context(), &round{})
	require.ErrorContains(t, err, "two")
	assert.NotContains(t, err.Error(), "one")
	calm(6)
}

// A relay that runs with a clock of its own is gone after that play, also where the play has failed;
// and what ends just before a check is told by that check.
func TestAWrongClockEndsWithItsRound(t *testing.T) {
	t.Parallel()
	r := &relayNode{name: "r1", dir: t.TempDir(), binary: "sleep"}
	r.command = rig.Command{Name: "r1", Args: []string{r.binary, "600"}, Log: filepath.Join(r.dir, "relay.log")}
	undo := r.run("sleep", time.Hour)
	require.NoError(t, r.start())
	off := r.process
	undo()
	assert.True(t, off.Ended())
	require.NoError(t, r.endedBadly(), "it was ended on purpose")
	assert.Empty(t, r.command.Env)

	r.command.Args = []string{"sh", "-c", "echo no disk; exit 4"}
	require.NoError(t, r.start())
	waiting.Until(t, r.process.Ended)
	r.command.Args = []string{"sleep", "600"}
	require.ErrorContains(t, r.endedBadly(), "no disk")
	require.NoError(t, r.endedBadly())
	r.kill()
}

// What a wrong clock has left in the trail is known by its times, for ever. What else it lacks is a
// fault.
func TestATrailLacksWhatAWrongClockCost(t *testing.T) {
	t.Parallel()
	j := newJudge(&scene{})
	at := func(d time.Duration) string { return j.began.Add(d).UTC().Format(time.RFC3339) }
	clock := proof.Finding{Kind: proof.KindHeartbeat, From: 3, To: 3, Detail: "from " + at(-time.Hour) + " to " + at(time.Second) + ": the clock went back"}
	gap := proof.Finding{Kind: proof.KindLooks, From: 4, To: 4, Detail: "nobody looked between " + at(0) + " and " + at(10*time.Minute)}
	lost := proof.Finding{Kind: proof.KindLost, From: 5, To: 5, Detail: "entries of " + at(time.Hour)}
	of := func(all ...proof.Finding) []byte {
		said, err := json.Marshal(verify.Report{Completeness: verify.Verdict{Findings: all}})
		require.NoError(t, err)
		return said
	}
	require.NoError(t, j.complete(of(clock)))
	j.began = j.began.Add(-time.Hour) // it is no longer far from the present
	require.NoError(t, j.complete(of(clock)))
	assert.Equal(t, 1, j.tally.clocks)
	require.ErrorContains(t, j.complete(of(clock, gap)), "nobody looked")

	j.began = time.Now().Add(-50 * time.Minute) // a clock that is an hour late is near to that
	late := proof.Finding{Kind: proof.KindHeartbeat, From: 6, To: 6, Detail: "from " + at(50*time.Minute) + " to " + at(-10*time.Minute) + ": the clock went back"}
	require.NoError(t, j.complete(of(late)))
	require.ErrorContains(t, j.complete(of(lost)), "lost")
}
