package health

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// TestJudgeElsewhere judges an environment whose stream ends at a foreign destination.
func TestJudgeElsewhere(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change         func(*Evidence)
		state          State
		reason, action string
	}{
		"an event":   {func(*Evidence) {}, Flowing, "the newest event at its destination is of 2026-11-18 11:59:59 UTC; the API declares the stream ACTIVE", ""},
		"not asked":  {func(e *Evidence) { neverPushed(e); e.Asked = false }, Unknown, "its events do not pass here: the API declares its stream to relay.example.com (GRAFANA_LOKI) ACTIVE; not watched: the configuration has no access", ""},
		"asked soon": {func(e *Evidence) { neverPushed(e) }, Unknown, "its events do not pass here", ""},
		"nothing":    {func(e *Evidence) { neverPushed(e); e.Arrivals.Looked = noon }, Unknown, "no event of the last 24 hours", "log in to shop/live once"},
		"silent": {
			func(e *Evidence) { learnt(e); lastPush(e, 30*time.Minute) },
			Silent, "one was due by 2026-11-18 11:", "search the destination",
		},
		"silent as far as is known": {
			func(e *Evidence) {
				learnt(e)
				lastPush(e, 9*time.Minute)
				e.Arrivals.Looked = noon.Add(-8*time.Minute - 50*time.Second)
			},
			Flowing, "the newest event", "",
		},
		"not seen for long": {
			func(e *Evidence) { learnt(e); lastPush(e, time.Hour); e.Arrivals.Looked = noon.Add(-11 * time.Minute) },
			Unknown, "last gave its newest event at 2026-11-18 11:49:00 UTC", "its log has the error",
		},
		"disabled": {
			func(e *Evidence) {
				learnt(e)
				lastPush(e, time.Hour)
				e.Declared.Status = "DISABLED"
			},
			Disabled, "DISABLED", "enable",
		},
	} {
		e := flows()
		e.Here, e.Generated, e.Asked = false, false, true
		e.Arrivals.Looked = noon.Add(-time.Second)
		c.change(e)
		e.LastNew = e.LastPush
		v := Judge(e, noon)
		assert.Equal(t, c.state, v.State, "%s: %s", name, v.Reason)
		assert.Contains(t, v.Reason, c.reason, name)
		assert.Contains(t, v.Action, c.action, name)
	}
}
