package health

import (
	"math"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/internal/ingest/credentials"
	"github.com/auditrelay/auditrelay/internal/ingest/received"
	"github.com/auditrelay/auditrelay/internal/workspace/management"
	"github.com/auditrelay/auditrelay/internal/workspace/streaming"
)

var (
	live = credentials.Environment{Project: "shop", Environment: "live"}
	noon = time.Date(2026, 11, 18, 12, 0, 0, 0, time.UTC) // a Wednesday
)

// flows is the evidence of an environment without trouble at noon.
func flows() *Evidence {
	return &Evidence{
		Environment: live, Here: true, Generated: true,
		Declared: Declared{
			Health: streaming.Health{
				Status: management.StatusActive, DestinationType: management.GrafanaLoki, Destination: "relay.example.com", LastLook: noon.Add(-30 * time.Second),
			},
			Watched: true, StatusSince: noon.Add(-time.Hour), Interval: time.Minute,
		},
		Arrivals: received.Snapshot{LastPush: noon.Add(-time.Second), Lateness: [3]float64{1, 2, 3}},
		Seen:     Seen{LastPush: noon.Add(-time.Second)},
		Runs:     map[string]received.Refusals{},
		Model:    &Rhythm{},
		Started:  noon.Add(-2 * time.Hour),
	}
}

func lastPush(e *Evidence, ago time.Duration) {
	e.LastPush = noon.Add(-ago)
	e.Arrivals.LastPush = e.LastPush
}

func neverPushed(e *Evidence) {
	e.LastPush, e.Arrivals = time.Time{}, received.Snapshot{Lateness: nans()}
}

func nans() [3]float64 { return [3]float64{math.NaN(), math.NaN(), math.NaN()} }

// learnt gives a model that knows a push each 20 seconds.
func learnt(e *Evidence) { e.Model = busy() }

var busy = sync.OnceValue(func() *Rhythm {
	m := &Rhythm{}
	for at := noon.Add(-15 * 24 * time.Hour); at.Before(noon); at = at.Add(20 * time.Second) {
		m.Observe(at, at.Add(20*time.Second), 5, 1)
	}
	return m
})

func refusedFor(e *Evidence, reason string, ago, last time.Duration) {
	e.Runs[reason] = received.Refusals{Count: 3, First: noon.Add(-ago), Last: noon.Add(-last)}
}

// Each case changes the evidence of an environment without trouble.
func TestJudge(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change         func(*Evidence)
		state          State
		reason, action string        // parts of them
		since          time.Duration // before noon; 0: not given
	}{
		"no trouble": {func(*Evidence) {}, Flowing, "pushes arrive", "", 0},
		"an earlier refusal": {
			func(e *Evidence) { refusedFor(e, received.Credential, time.Hour, time.Minute) },
			Flowing, "pushes arrive", "", 0,
		},
		"no API is configured": {func(e *Evidence) { e.Declared = Declared{Interval: time.Minute} }, Flowing, "pushes arrive", "", 0},
		"the API is not read any more": {
			func(e *Evidence) { e.Declared.LastLook = noon.Add(-4 * time.Minute) },
			Flowing, "the API was last read at 2026-11-18 11:56:00 UTC", "", 0,
		},
		"flowing though declared DISABLED": {
			func(e *Evidence) { e.Declared.Status = management.StatusDisabled },
			Flowing, "although the API declares the stream DISABLED", "in the dashboard", 0,
		},
		"quiet": {func(e *Evidence) { lastPush(e, 5*time.Hour) }, Flowing, "the last push came at 2026-11-18 07:00:00 UTC", "", 0},

		"refused": {
			func(e *Evidence) { refusedFor(e, received.Credential, time.Second/2, 0) },
			Refused, "the credential is not valid; no push was taken since", "`auditrelay credentials rotate shop/live`", time.Second / 2,
		},
		"refused, with a configured credential": {
			func(e *Evidence) { e.Generated = false; refusedFor(e, received.Credential, time.Second/2, 0) },
			Refused, "the credential is not valid", "set the configured password of shop/live in the dashboard", time.Second / 2,
		},
		"the advice of the one who looks": {func(e *Evidence) { e.Declared.Differs, e.Declared.Advice = []string{"hostname"}, "correct it" }, Misdirected, "", "correct it", 0},
		"no such environment": {
			func(e *Evidence) {
				neverPushed(e)
				e.Declared.LastLook = time.Time{}
				e.Declared.Finding, e.Declared.Advice = streaming.FindingAbsent, "correct the slugs"
			},
			Disabled, "the API knows no such environment", "correct the slugs", 0,
		},
		"silent": {
			func(e *Evidence) { learnt(e); lastPush(e, 30*time.Minute) },
			Silent, "no push since then, and by this environment's rhythm one was due by 2026-11-18 11:", "log in to shop/live once: if no push arrives within a minute", 30 * time.Minute,
		},
		"silent, and declared ACTIVE":   {func(e *Evidence) { learnt(e); lastPush(e, 30*time.Minute) }, Silent, "the API declares the stream ACTIVE all the same", "", 30 * time.Minute},
		"silent, and the API is away":   {func(e *Evidence) { learnt(e); lastPush(e, 30*time.Minute); e.Declared.LastLook = noon.Add(-time.Hour) }, Silent, "no push since then", "", 30 * time.Minute},
		"silent since the relay began":  {func(e *Evidence) { learnt(e); lastPush(e, time.Hour); e.Started = noon.Add(-30 * time.Minute) }, Silent, "no push since then", "", time.Hour},
		"nobody has waited long enough": {func(e *Evidence) { learnt(e); lastPush(e, time.Hour); e.Started = noon.Add(-time.Second) }, Flowing, "the last push came", "", 0},
		"silent as usual":               {func(e *Evidence) { learnt(e); lastPush(e, 2*time.Second) }, Flowing, "pushes arrive", "", 0},
		"repeated pushes only": {
			func(e *Evidence) { learnt(e); e.LastNew = noon.Add(-30 * time.Minute) },
			Silent, "only with events that had come before", "passes the answers", 30 * time.Minute,
		},
		"repeated pushes, as usual": {func(e *Evidence) { learnt(e); e.LastNew = noon.Add(-20 * time.Second) }, Flowing, "pushes arrive", "", 0},
		"disabled, and silent": {func(e *Evidence) {
			learnt(e)
			lastPush(e, 30*time.Minute)
			e.Declared.Status, e.Declared.StatusSince = "DISABLED", noon.Add(-time.Minute)
		}, Disabled, "", "", time.Minute},
		"refused, and never any push": {
			func(e *Evidence) { neverPushed(e); refusedFor(e, received.Credential, time.Hour, time.Minute) },
			Refused, "the credential is not valid", "rotate", time.Hour,
		},
		"refused while the API is away": {
			func(e *Evidence) {
				e.Declared.LastLook = time.Time{}
				refusedFor(e, received.Credential, time.Second, 0)
				lastPush(e, time.Minute)
			},
			Refused, "the credential is not valid", "rotate", time.Second,
		},
		"refused by the quota": {
			func(e *Evidence) { lastPush(e, time.Minute); refusedFor(e, received.Quota, 30*time.Second, 0) },
			Refused, "its quota is spent", "raise the quota of shop/live", 30 * time.Second,
		},
		"refused by the quota for a moment": {func(e *Evidence) { refusedFor(e, received.Quota, time.Second/2, 0) }, Flowing, "pushes arrive", "", 0},
		"one malformed push":                {func(e *Evidence) { refusedFor(e, received.Form, time.Second/2, 0) }, Flowing, "pushes arrive", "", 0},
		"malformed pushes only": {
			func(e *Evidence) { lastPush(e, time.Hour); refusedFor(e, received.Form, time.Hour, 0) },
			Refused, "they are malformed", "the log says", time.Hour,
		},
		"refused by credential and by quota": {func(e *Evidence) {
			lastPush(e, time.Hour)
			refusedFor(e, received.Quota, time.Hour, 0)
			refusedFor(e, received.Credential, time.Minute, 0)
		}, Refused, "the credential is not valid", "rotate", time.Minute},

		"another host": {
			func(e *Evidence) {
				e.Declared.Differs, e.Declared.Destination = []string{"hostname"}, "evil.example.net"
			},
			Misdirected, "the API shows the destination evil.example.net (GRAFANA_LOKI), not the configured one", "see `auditrelay streaming plan shop/live`", 0,
		},
		"another host, and refused": {func(e *Evidence) {
			e.Declared.Differs = []string{"username", "secret"}
			refusedFor(e, received.Credential, time.Second, 0)
		}, Misdirected, "the API shows the destination", "", 0},
		"another secret only": {func(e *Evidence) { e.Declared.Differs = []string{"secret"} }, Flowing, "pushes arrive", "", 0},
		"another host, long ago": {
			func(e *Evidence) {
				e.Declared.Differs = []string{"hostname"}
				e.Declared.LastLook = noon.Add(-181 * time.Second)
			},
			Flowing, "the API was last read", "", 0,
		},

		"disabled": {
			func(e *Evidence) {
				e.Declared.Status, e.Declared.StatusSince = management.StatusDisabled, noon.Add(-time.Minute)
				lastPush(e, 2*time.Minute)
			},
			Disabled, "declares the stream DISABLED, not ACTIVE", "enable the event log streaming of shop/live in the dashboard: the API has no operation for it", time.Minute,
		},
		"disabled a moment ago": {
			func(e *Evidence) {
				e.Declared.Status, e.Declared.StatusSince = management.StatusDisabled, noon.Add(-5*time.Second)
			},
			Disabled, "not ACTIVE", "enable", 5 * time.Second,
		},
		"pending, and never any push": {
			func(e *Evidence) { neverPushed(e); e.Declared.Status = management.StatusPending },
			Disabled, "declares the stream PENDING", "enable", time.Hour,
		},
		"no config": {func(e *Evidence) {
			e.Declared.Status, e.Declared.DestinationType, e.Declared.Destination, e.Declared.Differs = "", "", "", []string{"destination_type"}
		}, Disabled, "the API shows no streaming config", "see `auditrelay streaming plan shop/live`", 0},
		"disabled, long ago": {func(e *Evidence) {
			e.Declared.Status, e.Declared.LastLook = management.StatusDisabled, noon.Add(-time.Hour)
			lastPush(e, 2*time.Hour)
		}, Unknown, "the API was last read at 2026-11-18 11:00:00 UTC", "the section workspace of /status", 0},

		"late":                    {func(e *Evidence) { e.Arrivals.Lateness = [3]float64{60, 6 * 3600, 7 * 3600} }, Late, "one in ten after 6h0m0s or more", "wait", 0},
		"a few late ones":         {func(e *Evidence) { e.Arrivals.Lateness = [3]float64{1, 500, 7 * 3600} }, Flowing, "pushes arrive", "", 0},
		"late, and refused since": {func(e *Evidence) { e.Arrivals.Lateness[1] = 9e9; refusedFor(e, received.Credential, time.Second/2, 0) }, Refused, "", "", time.Second / 2},

		"no push yet": {neverPushed, Unknown, "no push has arrived yet, though the API declares the stream to relay.example.com (GRAFANA_LOKI) ACTIVE", "log in to shop/live once", 0},
		"no push, no config": {func(e *Evidence) {
			neverPushed(e)
			e.Declared.Status, e.Declared.DestinationType, e.Declared.Destination = "", "", ""
		}, Unknown, "no push has arrived yet, and the API shows no streaming config: the event log goes nowhere", "create a destination with this relay's host name", 0},
		"no push, as it goes elsewhere": {
			func(e *Evidence) { neverPushed(e); e.Declared.Destination = "loki.example.com" }, Unknown,
			"no push has arrived yet, though the API declares the stream to loki.example.com (GRAFANA_LOKI) ACTIVE", "log in", 0,
		},
		"no push, no look yet": {func(e *Evidence) { neverPushed(e); e.Declared.LastLook, e.Started = time.Time{}, noon }, Unknown, "the API was not read yet", "", 0},
		"no push, and no API":  {func(e *Evidence) { neverPushed(e); e.Declared.LastLook = time.Time{} }, Unknown, "the API has shown nothing since the relay started", "the section workspace", 0},
		"an earlier process's push, no look yet": {func(e *Evidence) {
			e.Arrivals.LastPush, e.LastPush = time.Time{}, noon.Add(-time.Minute)
			e.Declared.LastLook, e.Started = time.Time{}, noon
		}, Unknown, "the API was not read yet", "", 0},
		"an earlier process's push": {
			func(e *Evidence) {
				e.Arrivals.LastPush, e.LastPush, e.Started = time.Time{}, noon.Add(-time.Hour), noon
			},
			Flowing, "the last push came at", "", 0,
		},
		"no push for days": {func(e *Evidence) { lastPush(e, 25*time.Hour) }, Unknown, "so few come that their absence says nothing", "log in", 0},

		"not here":           {func(e *Evidence) { neverPushed(e); e.Here, e.Declared.Destination = false, "loki.example.com" }, Unknown, "its events do not pass here: the API declares its stream to loki.example.com (GRAFANA_LOKI) ACTIVE", "", 0},
		"not here, disabled": {func(e *Evidence) { neverPushed(e); e.Here, e.Declared.Status = false, management.StatusDisabled }, Disabled, "DISABLED", "enable", time.Hour},
		"not here, nowhere": {func(e *Evidence) {
			neverPushed(e)
			e.Here = false
			e.Declared.Status, e.Declared.DestinationType = "", ""
		}, Unknown, "do not pass here: the API shows no streaming config", "", 0},
		"not here, stale":      {func(e *Evidence) { neverPushed(e); e.Here, e.Declared.LastLook = false, noon.Add(-time.Hour) }, Unknown, "do not pass here, and the API was last read at", "the section workspace", 0},
		"not here, moved":      {func(e *Evidence) { neverPushed(e); e.Here, e.Declared.Differs = false, []string{"site"} }, Misdirected, "not the configured one", "", 0},
		"not here, not looked": {func(e *Evidence) { neverPushed(e); e.Here, e.Declared = false, Declared{} }, Unknown, "the relay does not look at its streaming config", "", 0},
		"not here, it pushes":  {func(e *Evidence) { e.Here = false }, Flowing, "pushes arrive", "", 0},

		"a gap": {func(e *Evidence) {
			e.Gap = &Gap{Cause: "refused", Begun: noon.Add(-2 * time.Hour), Ended: noon.Add(-time.Hour), EventsLost: 12, EventsLostLeast: 8, EventsLostMost: 16}
		}, Gapped, "about 12 events were lost (8 to 16) from 2026-11-18 10:00:00 UTC to 2026-11-18 11:00:00 UTC (refused)", "note the gap", time.Hour},
		"a gap of yesterday": {func(e *Evidence) { e.Gap = &Gap{Ended: noon.Add(-25 * time.Hour), EventsLost: 12} }, Flowing, "", "", 0},
		"a gap without loss": {func(e *Evidence) { e.Gap = &Gap{Ended: noon.Add(-time.Hour)} }, Flowing, "", "", 0},
		"a gap, and refused": {func(e *Evidence) {
			e.Gap = &Gap{Ended: noon.Add(-time.Hour), EventsLost: 1}
			refusedFor(e, received.Credential, time.Second/2, 0)
		}, Refused, "", "", time.Second / 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := flows()
			c.change(e)
			if e.LastNew.IsZero() {
				e.LastNew = e.LastPush
			}
			v := Judge(e, noon)
			assert.Equal(t, c.state, v.State, v.Reason)
			assert.Contains(t, v.Reason, c.reason)
			assert.Contains(t, v.Action, c.action)
			if c.action == "" && c.state.good() && c.state != Gapped {
				assert.Empty(t, v.Action, "nothing is to be done")
			}
			since := time.Duration(0)
			if !v.Since.IsZero() {
				since = noon.Sub(v.Since)
			}
			assert.Equal(t, c.since, since)
			assert.NotContains(t, v.Reason+v.Action, "%!", "a format without its value")
			assert.False(t, strings.HasSuffix(v.Reason, "."), "it stands within a sentence")
		})
	}
}

// Each state with something to do has its page.
func TestEachStateHasItsPage(t *testing.T) {
	t.Parallel()
	for _, s := range States() {
		_, page, some := strings.Cut(runbook(s), "/blob/main/")
		if assert.Equal(t, s != Flowing && s != Unknown, some, s) && some {
			assert.FileExists(t, "../../"+page)
		}
	}
}

func TestEachStateIsDocumented(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../deploy/README.md")
	require.NoError(t, err)
	for _, s := range States() {
		assert.Containsf(t, string(text), "\n| `"+string(s)+"` | ", "the table of states in deploy/README.md lacks %s", s)
		assert.Contains(t, Help(), string(s))
	}
}
