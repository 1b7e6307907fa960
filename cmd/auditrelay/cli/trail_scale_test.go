package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/internal/control/console"
	"github.com/auditrelay/auditrelay/internal/store"
	"github.com/auditrelay/auditrelay/internal/testbed/trailtest"
	"github.com/auditrelay/auditrelay/internal/trail/audit"
	"github.com/auditrelay/auditrelay/internal/trail/eventproof"
	"github.com/auditrelay/auditrelay/internal/trail/timeline"
)

const (
	scaleEnvironments = 20
	scaleStart        = 1_700_000_000 // Unix, of the first entry; a minute lies between two
)

// scaleEntry is entry i of a long trail: RBAC policies and SMS countries of 20 environments,
// in turn. A policy's admin may delete documents at every second change.
func scaleEntry(i int) audit.Entry {
	e := audit.Entry{
		Type: "settings.changed", Project: "acme", Environment: fmt.Sprintf("env-%02d", i%scaleEnvironments), Subject: "sms_country_codes",
		Time:   time.Unix(scaleStart+60*int64(i), 0).UTC(),
		Before: json.RawMessage(`["DE","FR"]`), After: json.RawMessage(`["DE","FR","GB"]`),
		Detail: json.RawMessage(fmt.Sprintf(`{"summary":"country GB allowed, by change %d","severity":"medium","direction":"weaker","cause":"outside"}`, i)),
	}
	if round := i / scaleEnvironments; round%2 == 0 {
		action := []string{"read", "delete"}[round/2%2]
		e.Subject = "rbac_policy"
		e.After = json.RawMessage(`{"custom_resources":[{"available_actions":["read","delete"],"resource_id":"documents"}],` +
			`"custom_roles":[{"permissions":[{"actions":["` + action + `"],"resource_id":"documents"}],"role_id":"admin"}]}`)
		e.Before = e.After
	}
	return e
}

// scaleServer serves the commands over a trail of n entries, and returns its data directory.
func scaleServer(tb testing.TB, n int) (dir string, stop func()) {
	tb.Helper()
	dir = tb.TempDir()
	files := trailtest.Store(tb, dir)
	options := audit.Options{KeySource: audit.KeySource{Origin: "example.com/trail", KeyFile: filepath.Join(dir, "audit.key")}, SignEvery: time.Hour}
	trail, err := audit.Open(tb.Context(), files, options)
	require.NoError(tb, err)
	require.NoError(tb, trail.Close(tb.Context()))
	fillTrail(tb, files, n)
	trail, err = audit.Open(tb.Context(), files, options)
	require.NoError(tb, err)
	size, err := trail.End(tb.Context())
	require.NoError(tb, err)
	require.EqualValues(tb, n, size)
	start := time.Now()
	stopServing := serveTrail(tb, trail, dir)
	tb.Logf("index made in %v", time.Since(start).Round(time.Millisecond))
	return dir, func() {
		stopServing()
		require.NoError(tb, trail.Close(context.WithoutCancel(tb.Context())))
		require.NoError(tb, files.Close())
	}
}

// serveTrail answers the commands' questions about a trail, as a relay on dir does.
func serveTrail(tb testing.TB, trail *audit.Trail, dir string) (stop func()) {
	tb.Helper()
	index := timeline.Open(timeline.Options{Path: filepath.Join(dir, timeline.FileName), Trail: trail})
	ctx, cancel := context.WithCancel(context.WithoutCancel(tb.Context()))
	done := make(chan struct{})
	go func() {
		defer close(done)
		index.Keep(ctx)
	}()
	server, err := console.Listen(tb.Context(), dir, console.Options{
		Timeline: index, Logger: slog.New(slog.DiscardHandler),
	}, func(err error) { tb.Error(err) })
	require.NoError(tb, err)
	require.NoError(tb, index.Ready(tb.Context()))
	return func() {
		require.NoError(tb, server.Close(ctx))
		cancel()
		<-done
	}
}

// fillTrail writes entries as the trail does, many at a time.
func fillTrail(tb testing.TB, to store.Store, n int) {
	tb.Helper()
	trailtest.Fill(tb, to, n, func(i int) audit.Entry {
		e := scaleEntry(i)
		if i == n-2 {
			e.Type = eventproof.Type
		}
		return e
	})
}

// firstLine is the time to the first output.
type firstLine struct {
	bytes.Buffer
	start time.Time
	took  time.Duration
}

func (f *firstLine) Write(p []byte) (int, error) {
	if f.took == 0 {
		f.took = time.Since(f.start)
	}
	return f.Buffer.Write(p)
}

// scaleCommands are the commands with a bound on their first line: 300 ms with a million
// entries. middle is the index of a policy entry.
func scaleCommands(middle int) map[string][]string {
	at := scaleEntry(middle).Time.Format(time.RFC3339)
	return map[string][]string{
		"list":           {"trail", "list"},
		"list-filtered":  {"trail", "list", "--setting", "rbac_policy", "--environment", "env-07", "--since", at},
		"list-text":      {"trail", "list", "--text", fmt.Sprintf("by change %d", middle+scaleEnvironments)},
		"list-not-there": {"trail", "list", "--text", "nobody has written this"},
		"show":           {"trail", "show", fmt.Sprint(middle)},
		"settings-show":  {"settings", "show", "rbac_policy", "--environment", "env-00", "--at", at},
		"who-can":        {"settings", "who-can", "delete", "documents", "--environment", "env-00", "--at", at},
	}
}

func runScale(tb testing.TB, dir string, args []string) *firstLine {
	tb.Helper()
	out := &firstLine{start: time.Now()}
	code := Program{}.Execute(tb.Context(), append(args, "--data-dir", dir), out, out)
	require.Equal(tb, ExitOK, code, out.String())
	return out
}

func TestALongTrailIsAnsweredFromTheIndex(t *testing.T) {
	t.Parallel()
	const n, middle = 4000, 40 * scaleEnvironments // more than an index has in one write and less than in two
	dir, stop := scaleServer(t, n)
	out := map[string]string{}
	for name, args := range scaleCommands(middle) {
		out[name] = runScale(t, dir, args).String()
	}
	require.Equal(t, 51, strings.Count(out["list"], "\n"), "a header, and the newest 50")
	require.Contains(t, out["list"], fmt.Sprint(n-1))
	require.Equal(t, 51, strings.Count(out["list-filtered"], "\n"))
	require.Equal(t, 2, strings.Count(out["list-text"], "\n"))
	require.Equal(t, "no entries\n", out["list-not-there"])
	span := fmt.Sprintf("\n%8d  ", n-2)
	require.NotContains(t, out["list"], span, "digests are not listed unasked")
	for _, asked := range [][]string{{"--all"}, {"--type", eventproof.Type}, {"--setting", scaleEntry(n - 2).Subject}} {
		require.Contains(t, runScale(t, dir, append([]string{"trail", "list"}, asked...)).String(), span, "%v", asked)
	}
	require.Contains(t, out["settings-show"], `"read"`)
	require.Contains(t, out["who-can"], "nobody: no role and no scope has a permission for `delete` on `documents`")
	later := scaleCommands(middle + 2*scaleEnvironments)["who-can"]
	require.Contains(t, runScale(t, dir, later).String(), "role `admin`  permission for `delete` on `documents`")
	stop()
	index, err := os.ReadFile(filepath.Join(dir, timeline.FileName))
	require.NoError(t, err)
	for name, args := range scaleCommands(middle) {
		require.Equal(t, out[name], runScale(t, dir, append(args, "--offline")).String(), "%s of the stopped relay", name)
	}
	same, err := os.ReadFile(filepath.Join(dir, timeline.FileName))
	require.NoError(t, err)
	require.Equal(t, index, same, "nothing is changed there")
}

// BenchmarkATrailOfAMillion prints each command's first line in ms, and the memory of the
// index in MB, for a trail of a million entries. Run it with -benchtime 20x.
func BenchmarkATrailOfAMillion(b *testing.B) {
	const n = 1_000_000
	before := heap()
	dir, stop := scaleServer(b, n)
	defer stop()
	b.Logf("heap after: %d MB, before: %d MB", heap()>>20, before>>20)
	for name, args := range scaleCommands(n / 2) {
		b.Run(name, func(b *testing.B) {
			worst := time.Duration(0)
			for b.Loop() {
				worst = max(worst, runScale(b, dir, args).took)
			}
			b.ReportMetric(float64(worst.Microseconds())/1000, "worst-ms")
		})
	}
}

func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
