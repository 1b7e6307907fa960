package workspacesim

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/internal/testbed/waiting"
)

// fast are options for streaming tests.
func fast(o Options) Options {
	o.PushEvery, o.RetryMin, o.RetryMax = 5*time.Millisecond, time.Millisecond, 4*time.Millisecond
	if o.Rate == 0 {
		o.Rate = 20_000
	}
	if o.PushEvents == 0 {
		o.PushEvents = 50
	}
	o.Projects = 1
	return o
}

func (a *api) streamTo(d *destination, environment string) {
	a.t.Helper()
	body := `{"destination_config":{"grafana_loki":{"hostname":"` + d.host() + `","username":"push-user","password":"push-pass"}}}`
	r := a.call("PUT", proj+"/environments/"+environment+"/event_log_streaming/GRAFANA_LOKI", body)
	require.Equal(a.t, 200, r.status, "%v", r.body)
}

// settle pauses, and waits until nothing is in flight.
func (a *api) settle() Counts {
	a.t.Helper()
	a.sim.Pause()
	ctx, cancel := context.WithTimeout(a.t.Context(), waiting.Stall)
	defer cancel()
	require.NoError(a.t, a.sim.Wait(ctx))
	c := a.sim.Counts()
	assert.Zero(a.t, c.InFlight)
	assert.Equal(a.t, c.Generated, c.Acknowledged+c.Dropped)
	return c
}

func (a *api) generated(n uint64) {
	a.t.Helper()
	waiting.Until(a.t, func() bool { return a.sim.Counts().Generated >= n })
}

// acknowledgedIDs are the acknowledged ids by the ledgers.
func (a *api) acknowledgedIDs() map[string]bool {
	ids := map[string]bool{}
	for _, l := range a.sim.Ledgers() {
		for _, r := range l.Acknowledged {
			for seq := r.From; seq < r.To; seq++ {
				ids[EventID(l.Prefix, seq)] = true
			}
		}
	}
	return ids
}

// sameIDs asserts equality of the ids taken by ds and those acknowledged.
func (a *api) sameIDs(ds ...*destination) {
	a.t.Helper()
	want, got := a.acknowledgedIDs(), map[string]bool{}
	for _, d := range ds {
		d.mu.Lock()
		for id := range d.ids {
			got[id] = true
		}
		d.mu.Unlock()
	}
	assert.Equal(a.t, len(want), len(got))
	for id := range want {
		if !got[id] {
			require.Fail(a.t, "acknowledged, and not there", id)
		}
	}
}

func TestStreamsToLoki(t *testing.T) {
	t.Parallel()
	a, d := newAPI(t, fast(Options{GzipShare: 0.3})), newDestination(t)
	a.streamTo(d, "production")
	a.streamTo(d, "test")
	a.sim.Start(t.Context())
	a.generated(5000)
	c := a.settle()
	assert.Zero(t, c.Dropped)
	a.sameIDs(d)
	unique, repeated := d.taken()
	assert.EqualValues(t, c.Acknowledged, unique)
	assert.Zero(t, repeated)
	assert.InDelta(t, 0.3*float64(d.pushes), d.gzipped, 0.25*float64(d.pushes)+5)
	assert.Positive(t, d.gzipped)
	assert.LessOrEqual(t, d.most, 50)
	before := a.sim.Counts().Generated
	a.sim.Resume()
	a.generated(before + 1)
}

func TestStreamsToDatadog(t *testing.T) {
	t.Parallel()
	d := newDestination(t)
	a := newAPI(t, fast(Options{DatadogSites: map[string]string{"US": d.URL + "/"}}))
	require.Equal(t, 200, a.call("PUT", env+"/event_log_streaming/DATADOG", datadogBody).status)
	a.sim.Start(t.Context())
	a.generated(2000)
	c := a.settle()
	assert.Zero(t, c.Dropped)
	assert.Positive(t, c.Unstreamed, "the test environment streams nowhere")
	a.sameIDs(d)
}

func TestRetriesUntilAcknowledged(t *testing.T) {
	t.Parallel()
	a, d := newAPI(t, fast(Options{RepushShare: 1})), newDestination(t)
	// Two good answers in a row: some pushes are taken again at once.
	d.setFault(func(push int) int { return []int{0, 0, 429, 500, 0, 503, 408, 302}[push%8] })
	a.streamTo(d, "production")
	a.sim.Start(t.Context())
	a.generated(3000)
	c := a.settle()
	assert.Zero(t, c.Dropped)
	assert.Positive(t, c.Retries)
	a.sameIDs(d)
	_, repeated := d.taken()
	assert.Positive(t, c.Repushed)
	assert.Positive(t, repeated)
}

func TestSurvivesAnOutage(t *testing.T) {
	t.Parallel()
	a, d := newAPI(t, fast(Options{})), newDestination(t)
	a.streamTo(d, "production")
	d.setFault(func(int) int { panic(http.ErrAbortHandler) })
	a.sim.Start(t.Context())
	a.generated(2000)
	assert.Zero(t, a.sim.Counts().Acknowledged)
	assert.Empty(t, a.acknowledgedIDs())
	d.setFault(nil)
	assert.Zero(t, a.settle().Dropped)
	a.sameIDs(d)
}

func TestRefusedAndOverflowingEventsAreCounted(t *testing.T) {
	t.Parallel()
	a, d := newAPI(t, fast(Options{QueueEvents: 1000})), newDestination(t)
	d.setFault(func(push int) int { return []int{0, 400}[push%2] })
	a.streamTo(d, "production")
	a.sim.Start(t.Context())
	a.generated(2000)
	d.setFault(func(int) int { return 503 })
	before := a.sim.Counts().Generated
	a.generated(before + 3000)
	assert.LessOrEqual(t, a.sim.Counts().InFlight, uint64(1000))
	d.setFault(nil)
	c := a.settle()
	assert.Greater(t, c.Dropped, uint64(2000))
	a.sameIDs(d)
	var dropped uint64
	for _, l := range a.sim.Ledgers() {
		for _, r := range l.Dropped {
			dropped += r.To - r.From
		}
	}
	assert.Equal(t, c.Dropped, dropped)
}

func TestNewDestinationTakesEffectAtOnce(t *testing.T) {
	t.Parallel()
	a, old, next := newAPI(t, fast(Options{})), newDestination(t), newDestination(t)
	a.streamTo(old, "production")
	a.sim.Start(t.Context())
	a.generated(1000)
	waiting.Until(t, func() bool { n, _ := old.taken(); return n > 0 })
	old.setFault(func(int) int { return 503 })
	a.generated(a.sim.Counts().Generated + 1000)
	a.streamTo(next, "production")
	assert.Zero(t, a.settle().Dropped)
	oldIDs, _ := old.taken()
	nextIDs, _ := next.taken()
	assert.Positive(t, oldIDs)
	assert.GreaterOrEqual(t, nextIDs, 1000)
	a.sameIDs(old, next)
}

func TestNothingIsBackfilled(t *testing.T) {
	t.Parallel()
	a, d := newAPI(t, fast(Options{})), newDestination(t)
	a.sim.Start(t.Context())
	unstreamed := func(n uint64) {
		waiting.Until(t, func() bool { return a.sim.Counts().Unstreamed >= n })
	}
	unstreamed(500)
	assert.Zero(t, a.sim.Counts().Generated)
	a.streamTo(d, "production")
	a.generated(500)
	require.NoError(t, a.sim.SetStreamingStatus("acme-portal", "production", "DISABLED"))
	a.settle()
	before := a.sim.Counts()
	a.sim.Resume()
	unstreamed(before.Unstreamed + 500)
	assert.Equal(t, before.Generated, a.sim.Counts().Generated)
	a.sameIDs(d)
}

func TestStopAndStartGoOn(t *testing.T) {
	t.Parallel()
	a, d := newAPI(t, fast(Options{})), newDestination(t)
	a.streamTo(d, "production")
	d.setFault(func(int) int { return 503 })
	a.sim.Start(t.Context())
	a.generated(500)
	a.sim.Stop()
	stopped := a.sim.Counts()
	assert.Equal(t, stopped.Generated, stopped.InFlight)
	d.setFault(nil)
	a.sim.Start(t.Context())
	assert.Zero(t, a.settle().Dropped)
	a.sameIDs(d)
}

func TestPushesOverTLS(t *testing.T) {
	t.Parallel()
	sim, err := New(Options{})
	require.NoError(t, err)
	for hostname, want := range map[string]string{
		"logs.example.com": "https://logs.example.com/loki/api/v1/push",
		"10.1.2.3":         "https://10.1.2.3/loki/api/v1/push",
		"localhost:3100":   "http://localhost:3100/loki/api/v1/push",
		"127.0.0.1":        "http://127.0.0.1/loki/api/v1/push",
		"[::1]:3100":       "http://[::1]:3100/loki/api/v1/push",
		"::1":              "http://[::1]/loki/api/v1/push",
	} {
		assert.True(t, sim.validHostname(hostname), hostname)
		target := sim.targetOf(&streamingConfig{destinationType: typeLoki, status: StatusActive, hostname: hostname}, StreamFaults{})
		assert.Equal(t, want, target.url)
	}
}

func TestWaitEndsWithItsContext(t *testing.T) {
	t.Parallel()
	a, d := newAPI(t, fast(Options{})), newDestination(t)
	d.setFault(func(int) int { return 503 })
	a.streamTo(d, "production")
	a.sim.Start(t.Context())
	a.generated(10)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, a.sim.Wait(ctx), context.DeadlineExceeded)
}

func TestSetRate(t *testing.T) {
	t.Parallel()
	a, d := newAPI(t, fast(Options{})), newDestination(t)
	a.streamTo(d, "production")
	require.NoError(t, a.sim.SetRate("", "", 0))
	a.sim.Start(t.Context())
	require.NoError(t, a.sim.SetRate("acme-portal", "production", 50_000))
	a.generated(1000)
	a.settle()
	assert.Zero(t, a.sim.Ledgers()[1].Unstreamed)
	require.Error(t, a.sim.SetRate("acme-portal", "nowhere", 1))
	require.Error(t, a.sim.SetRate("", "", -1))
}

// A new destination ends a push's backoff at the former one.
func TestNewDestinationEndsTheBackoff(t *testing.T) {
	t.Parallel()
	o := fast(Options{})
	o.RetryMin, o.RetryMax = time.Hour, time.Hour
	a, old, next := newAPI(t, o), newDestination(t), newDestination(t)
	old.setFault(func(int) int { return 503 })
	a.streamTo(old, "production")
	a.sim.Start(t.Context())
	waiting.Until(t, func() bool { return a.sim.Counts().Pushes >= 8 })
	a.streamTo(next, "production")
	assert.Zero(t, a.settle().Dropped)
	a.sameIDs(next)
}
