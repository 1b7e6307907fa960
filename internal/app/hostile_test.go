package app

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/internal/control/console"
	"github.com/auditrelay/auditrelay/internal/testbed/readback"
	"github.com/auditrelay/auditrelay/internal/testbed/waiting"
	"github.com/auditrelay/auditrelay/relay"
)

// silenced makes an entry of the trail, and waits until a sink has it.
func (r *running) silenced(dataDir, environment string) readback.Record {
	r.t.Helper()
	silences := func() (all []readback.Record) {
		for rec, err := range readback.Records(r.path) {
			if err == nil && rec.Attributes["type"] == "silence.added" {
				all = append(all, rec)
			}
		}
		return all
	}
	before := len(silences())
	_, err := console.NewClient(dataDir).AddSilence(r.t.Context(), console.AddSilence{Project: "acme", Environment: environment, For: 3600, Reason: "test"})
	require.NoError(r.t, err)
	waiting.Until(r.t, func() bool { return len(silences()) > before })
	return silences()[before]
}

// Ids of the trail's entries can be foreseen. A push that takes them, and names whatever
// else it can, shares no pair of source and id with an entry.
func TestAPushCannotTakeTheIDOfAFutureEntry(t *testing.T) {
	t.Parallel()
	for _, slug := range []string{"live", "trail", "..%2ftrail"} {
		cfg := testConfig(t.TempDir())
		cfg.Environments[0].Environment = slug
		r := start(t, cfg)
		first := r.silenced(cfg.DataDir, slug)
		name, index, _ := strings.Cut(first.ID(), "@")
		var next int64
		_, err := fmt.Sscan(index, &next)
		require.NoError(t, err)
		var squatted []string
		for i := range int64(5) {
			squatted = append(squatted, fmt.Sprintf("%s@%d", name, next+i))
		}
		code, body := r.pushLoki(fmt.Sprintf(`{"streams":[{"stream":{"source":%q,"ce_source":%[1]q,"type":"silence.added"},"values":[["1","{\"event_id\":\"%s\",\"source\":\"%[1]s\",\"type\":\"silence.added\"}"]]}]}`,
			relay.TrailSource, squatted[0]))
		require.Equal(t, 204, code, body)
		code, body = r.push(squatted...)
		require.Equal(t, 204, code, body)
		real := r.silenced(cfg.DataDir, slug)
		require.Contains(t, squatted, real.ID(), "the id was foreseen")
		r.arrived(squatted...)
		seen := map[string]string{}
		for rec, err := range readback.Records(r.path) {
			require.NoError(t, err)
			pushed := strings.HasPrefix(fmt.Sprint(rec.Attributes["type"]), "event_log")
			require.Equal(t, !pushed, rec.Attributes["source"] == relay.TrailSource, "%v", rec.Attributes)
			if pushed {
				seen[fmt.Sprint(rec.Attributes["source"], " ", rec.ID())] = string(rec.Body)
			}
		}
		require.NotContains(t, seen, fmt.Sprint(real.Attributes["source"], " ", real.ID()))
		require.NoError(t, r.stop())
	}
}
