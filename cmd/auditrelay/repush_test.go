package main

import (
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/internal/testbed/journaltest"
	"github.com/auditrelay/auditrelay/internal/testbed/workspacesim"
	vocabulary "github.com/auditrelay/auditrelay/relay"
)

// A sender pushes a third of everything again, as after a lost answer. That causes no
// duplicate anywhere, across clean restarts too.
func TestWhatIsPushedAgainArrivesOnce(t *testing.T) {
	s := newSceneOf(t, 600, workspacesim.Options{Projects: 1, RetryMax: 200 * time.Millisecond, RepushShare: 0.3})
	relay := s.start(t)
	recognised := 0.0
	for range 3 {
		s.waitAcknowledged(t, s.sim.Counts().Acknowledged+600)
		recognised += s.metric(t, "auditrelay_ingest_duplicate_events_total")
		require.NoError(t, relay.Process.Signal(syscall.SIGTERM))
		require.NoError(t, relay.Wait(), "%s", s.output.String())
		relay = s.start(t)
	}
	s.sim.Pause()
	s.settle(t)
	require.Positive(t, s.sim.Counts().Repushed)
	assert.Positive(t, recognised)
	for _, d := range s.destinations {
		tally := s.arrived(t, d)
		t.Logf("%s: unique %d, duplicates %d, of %d pushes %d came again; recognised %v events before restarts",
			d.Name(), tally.Unique, tally.Duplicates, s.sim.Counts().Pushes, s.sim.Counts().Repushed, recognised)
		assert.Zero(t, tally.Duplicates, d.Name())
	}
	require.NoError(t, relay.Process.Signal(syscall.SIGTERM))
	require.NoError(t, relay.Wait())
}

// Killed at any moment, the relay stores no event twice: committed but unacknowledged
// events come again, and the next process knows them. Duplicates at the sinks are
// redeliveries.
func TestWhatIsPushedAgainAfterAKillIsStoredOnce(t *testing.T) {
	s := newSceneOf(t, 600, workspacesim.Options{Projects: 1, RetryMax: 200 * time.Millisecond, RepushShare: 0.3})
	relay := s.start(t)
	for range 6 {
		s.waitAcknowledged(t, s.sim.Counts().Acknowledged+rand.Uint64N(300)+1)
		require.NoError(t, relay.Process.Kill())
		_ = relay.Wait() // it was killed
		relay = s.start(t)
	}
	s.waitAcknowledged(t, s.sim.Counts().Acknowledged+1) // it must listen to signals first
	s.sim.Pause()
	s.settle(t)
	require.NoError(t, relay.Process.Signal(syscall.SIGTERM))
	require.NoError(t, relay.Wait(), "%s", s.output.String())

	tally := s.journalled(t)
	t.Logf("acknowledged %d, in the journal %d, twice %d; %d pushes came again", s.sim.Counts().Acknowledged, tally.Unique, tally.Duplicates, s.sim.Counts().Repushed)
	assert.Zero(t, tally.Missing(s.sim.Ledgers()))
	assert.Zero(t, tally.Duplicates)
}

// journalled counts the events in the journal of a stopped relay.
func (s *scene) journalled(t *testing.T) (tally workspacesim.Tally) {
	t.Helper()
	t.Setenv("SIM_SECRET", workspacesim.DemoSecret)
	cfg, _, err := config.Load(s.config)
	require.NoError(t, err)
	j := journaltest.Open(t, cfg.DataDir, cfg.Journal, journaltest.Options{})
	defer j.Shut()
	require.NoError(t, j.ReadBack(t.Context(), time.Time{}, math.MaxUint64, func(events []vocabulary.Event) bool {
		for i := range events {
			tally.Add(events[i].ID)
		}
		return true
	}))
	return tally
}

// metric sums a metric of the running relay over its labels.
func (s *scene) metric(t *testing.T, name string) (sum float64) {
	t.Helper()
	resp, err := http.Get("http://" + s.admin + "/metrics")
	require.NoError(t, err)
	defer func() { require.NoError(t, resp.Body.Close()) }()
	text, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, name+"{") {
			var v float64
			_, err := fmt.Sscan(line[strings.LastIndexByte(line, ' ')+1:], &v)
			require.NoError(t, err)
			sum += v
		}
	}
	return sum
}
