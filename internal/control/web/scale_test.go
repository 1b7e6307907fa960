package web

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"log/slog"
	"net/http"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/internal/health"
	"github.com/auditrelay/auditrelay/internal/testbed/trailtest"
	"github.com/auditrelay/auditrelay/internal/trail/audit"
	"github.com/auditrelay/auditrelay/internal/trail/timeline"
)

const scaleEnvironments = 1000

// scaleEntry is entry i of a long trail: each environment's settings in turn, a minute apart.
func scaleEntry(i int) audit.Entry {
	setting := []string{"password_strength_config", "sms_country_codes", rbacSubject}[i/scaleEnvironments%3]
	e := audit.Entry{
		Type: "settings.changed", Project: fmt.Sprintf("project-%02d", i%40), Environment: fmt.Sprintf("env-%03d", i%scaleEnvironments), Subject: setting,
		Time:   time.Unix(1_700_000_000+60*int64(i), 0).UTC(),
		Before: json.RawMessage(`["DE","FR"]`), After: json.RawMessage(`["DE","FR","GB"]`),
		Detail: json.RawMessage(fmt.Sprintf(`{"summary":"country GB allowed, by change %d","severity":%q,"direction":%q,"cause":"outside"}`,
			i, []string{"low", "medium", "high"}[i%3], []string{"weaker", "stronger"}[i%2])),
	}
	if setting == rbacSubject {
		e.Before, e.After = json.RawMessage(policyBefore), json.RawMessage(policyAfter)
	}
	return e
}

// scaleStatus are many environments, a few of them in trouble.
func scaleStatus() (all []health.Status) {
	for i := range scaleEnvironments {
		s := health.Status{
			Project: fmt.Sprintf("project-%02d", i%40), Environment: fmt.Sprintf("env-%03d", i), State: health.Flowing,
			Reason: "pushes arrive, as is usual for the environment", EventsByMinute: make([]int64, 60),
		}
		for m := range s.EventsByMinute {
			s.EventsByMinute[m] = int64(i*m%97) * 31
		}
		if i%100 == 7 {
			s.State, s.Action = health.Silent, "look at the sender"
		}
		all = append(all, s)
	}
	return all
}

func newLongStage(tb testing.TB, n int) *stage {
	tb.Helper()
	dir := tb.TempDir()
	files := trailtest.Store(tb, filepath.Join(dir, "trail"))
	options := audit.Options{KeySource: audit.KeySource{Origin: "example.com/trail", KeyFile: filepath.Join(dir, "audit.key")}, SignEvery: time.Hour}
	trail, err := audit.Open(tb.Context(), files, options)
	require.NoError(tb, err)
	require.NoError(tb, trail.Close(tb.Context()))
	trailtest.Fill(tb, files, n, scaleEntry)
	trail, err = audit.Open(tb.Context(), files, options)
	require.NoError(tb, err)
	s := &stage{dir: dir, trail: trail, status: map[string]any{"environments": scaleStatus()}}
	s.index = timeline.Open(timeline.Options{Path: filepath.Join(dir, timeline.FileName), Trail: trail})
	s.begin(tb, slog.New(slog.DiscardHandler), func() {
		require.NoError(tb, trail.Close(context.Background()))
		require.NoError(tb, files.Close())
	})
	require.NoError(tb, s.index.Ready(tb.Context()))
	return s
}

// scalePages are the pages with a bound of 100 ms with a million entries; middle is an entry.
func scalePages(middle int) map[string]string {
	return map[string]string{
		"overview":           "/",
		"overview-last":      "/?from=960",
		"changes":            "/changes",
		"changes-filtered":   "/changes?setting=rbac_policy&environment=env-007&severity=medium",
		"changes-middle":     fmt.Sprintf("/changes?before=%d", middle),
		"changes-after":      fmt.Sprintf("/changes?after=%d&direction=weaker", middle),
		"changes-text":       fmt.Sprintf("/changes?text=by+change+%d", middle),
		"changes-not-there":  "/changes?text=nobody+has+written+this",
		"entry":              fmt.Sprintf("/changes/%d", middle),
		"states":             "/states",
		"streaming":          "/streaming",
		"streaming-last":     "/streaming?from=960",
		"history":            "/streaming/project-07/env-007",
		"history-long":       "/streaming/project-07/env-007?days=90",
		"states-environment": fmt.Sprintf("/states?environment=env-007&entry=%d", middle),
	}
}

func TestPagesOfALongTrail(t *testing.T) {
	t.Parallel()
	const n = 5000
	c := newLongStage(t, n)
	cookie := login(t, c.Console, c.URL)
	for name, path := range scalePages(n / 2) {
		resp, body := send(t, http.MethodGet, c.URL+path, cookie)
		require.Equal(t, http.StatusOK, resp.StatusCode, name)
		require.Less(t, len(body), 200_000, name)
	}
	_, body := send(t, http.MethodGet, c.URL+"/", cookie)
	require.Contains(t, body, "10 of 1000 environments need attention")
	require.Contains(t, body, "60 of 1000, the troubled ones first")
}

// Both lists of environments have each one that fits once, over all their pages, and those in trouble
// on the first.
func TestEnvironmentsArePaged(t *testing.T) {
	t.Parallel()
	c := newStage(t)
	c.status["environments"] = scaleStatus()
	cookie := login(t, c.Console, c.URL)
	names := regexp.MustCompile(`<bdi>(project-\d\d/env-\d{3})</bdi>`)
	for _, path := range []string{"/", "/streaming"} {
		for query, want := range map[string]int{"": 1000, "?state=silent": 10, "?state=flowing&words=ENV-1": 99, "?words=project-07/": 25, "?words=none": 0} {
			var seen []string
			for at := path + query; at != ""; {
				_, body := send(t, http.MethodGet, c.URL+at, cookie)
				found := names.FindAllStringSubmatch(body, -1)
				require.LessOrEqual(t, len(found), environmentsPerPage, at)
				for _, name := range found {
					seen = append(seen, name[1])
				}
				at = linkTo(body, `>More<`)
			}
			if query == "" {
				for _, name := range seen[:10] {
					require.True(t, strings.HasSuffix(name, "07"), "%s has %s, which is in no trouble, first", path, name)
				}
			}
			require.Len(t, seen, want, path+query)
			slices.Sort(seen)
			require.Len(t, slices.Compact(seen), want, path+query)
		}
	}
}

var scaleEntries = flag.Int("entries", 1_000_000, "of the trail of BenchmarkPagesOfALongTrail")

// BenchmarkPagesOfALongTrail prints each page's median and worst time in ms, for a trail of a million
// entries and a thousand environments. Run it with -benchtime 20x.
func BenchmarkPagesOfALongTrail(b *testing.B) {
	n := *scaleEntries
	c := newLongStage(b, n)
	cookie := login(b, c.Console, c.URL)
	for name, path := range scalePages(n / 2) {
		b.Run(name, func(b *testing.B) {
			var all []time.Duration
			for b.Loop() {
				start := time.Now()
				resp, _ := send(b, http.MethodGet, c.URL+path, cookie)
				all = append(all, time.Since(start))
				require.Equal(b, http.StatusOK, resp.StatusCode)
			}
			slices.Sort(all)
			b.ReportMetric(float64(all[len(all)/2].Microseconds())/1000, "median-ms")
			b.ReportMetric(float64(all[len(all)-1].Microseconds())/1000, "worst-ms")
		})
	}
}
