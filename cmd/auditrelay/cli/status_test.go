package cli

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/internal/control/admin"
	"github.com/auditrelay/auditrelay/internal/control/console"
	"github.com/auditrelay/auditrelay/internal/health"
	"github.com/auditrelay/auditrelay/internal/journal"
	"github.com/auditrelay/auditrelay/internal/plaintext"
	"github.com/auditrelay/auditrelay/internal/workspace"
	"github.com/auditrelay/auditrelay/internal/workspace/management"
	"github.com/auditrelay/auditrelay/internal/workspace/streaming"
	"github.com/auditrelay/auditrelay/relay"
)

func statusOf(t testing.TB, name string) map[string]json.RawMessage {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", "status", name+".json"))
	require.NoError(t, err)
	var sections map[string]json.RawMessage
	require.NoError(t, json.Unmarshal(text, &sections))
	return withVerdict(t, sections)
}

// withVerdict adds the verdict that a relay with these sections gives.
func withVerdict(t testing.TB, sections map[string]json.RawMessage) map[string]json.RawMessage {
	t.Helper()
	read := map[string]any{}
	add := func(name string, into any) {
		var failed map[string]string
		if json.Unmarshal(sections[name], &failed) == nil && failed["error"] != "" && len(failed) == 1 {
			read[name] = failed
		} else if json.Unmarshal(sections[name], into) == nil {
			read[name] = reflect.ValueOf(into).Elem().Interface()
		}
	}
	add("environments", &[]health.Status{})
	add("journal", &journal.Usage{})
	add("ready", &admin.Readiness{})
	add("settings", &[]workspace.SettingStatus{})
	add("sinks", &[]console.Sink{})
	add("streaming", &[]streaming.Health{})
	add("workspace", &management.Reach{})
	verdict, err := json.Marshal(console.Judge(read))
	require.NoError(t, err)
	sections["verdict"] = verdict
	return sections
}

// Each answer has its screens as golden files; UPDATE_SCREENS=1 writes them.
func TestScreens(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"well", "trouble", "cut-off"} {
		s := screen{status: readStatus(statusOf(t, name))}
		for _, width := range []int{40, 80, 120} {
			lines := s.draw(brush{}, width)
			for _, line := range lines {
				assert.LessOrEqual(t, utf8.RuneCountInString(line), width, "%q", line)
				assert.False(t, strings.ContainsFunc(line, plaintext.Steers), "%q", line)
			}
			golden := filepath.Join("testdata", "status", fmt.Sprintf("%s.%d.txt", name, width))
			if os.Getenv("UPDATE_SCREENS") != "" {
				require.NoError(t, os.WriteFile(golden, []byte(strings.Join(lines, "\n")+"\n"), 0o600))
			}
			want, err := os.ReadFile(golden)
			require.NoError(t, err)
			assert.Equal(t, string(want), strings.Join(lines, "\n")+"\n", golden)
			assert.Equal(t, lines, uncoloured(t, s.draw(brush{true}, width)), "colours move nothing")
		}
	}
}

var sgr = regexp.MustCompile(`\x1b\[(1|2|3[1236]|1;31|0)m`)

// uncoloured takes the known colours away; nothing else may steer the terminal.
func uncoloured(t testing.TB, lines []string) []string {
	t.Helper()
	plain := make([]string, len(lines))
	for i, line := range lines {
		plain[i] = strings.TrimRight(sgr.ReplaceAllString(line, ""), " ")
		assert.False(t, strings.ContainsFunc(plain[i], plaintext.Steers), "%q", line)
	}
	return plain
}

func TestVerdict(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		section, with, verdict, says string
	}{
		{"", "", console.AllWell, "ALL WELL: 1 environment flows, 1 sink delivers"},
		{"environments", `[{"project":"p","environment":"e","state":"silent"}]`, console.Trouble, "p/e is silent"},
		{"environments", `[{"project":"p","environment":"e","state":"gapped"}]`, console.Trouble, "p/e is gapped"},
		{"environments", `[{"project":"p","environment":"e","state":"of a newer relay"}]`, console.Trouble, "of a newer relay"},
		{"environments", `[{"project":"p","environment":"e","state":"silent","silenced":true}]`, console.AllWell, "ALL WELL"},
		{"environments", `[{"project":"p","environment":"e","state":"unknown"}]`, console.NotAllKnown, "p/e is unknown; nothing is known to be wrong"},
		{"environments", `{"error":"too late"}`, console.Trouble, "the section environments cannot be read"},
		{"environments", `null`, console.AllWell, "0 environments flow"},
		{"sinks", `[{"name":"s","configured":true,"lag_seconds":299}]`, console.AllWell, "1 sink delivers"},
		{"sinks", `[{"name":"s","configured":true,"lag_seconds":301}]`, console.Trouble, "sink s lags"},
		{"sinks", `[{"name":"s","configured":true,"failing_since":"2026-03-04T10:12:03Z"}]`, console.Trouble, "sink s fails"},
		{"sinks", `[{"name":"s","configured":true,"dead_letters":1}]`, console.Trouble, "sink s has 1 dead letter"},
		{"sinks", `[{"name":"s","configured":false,"position":{"pending_records":1}}]`, console.Trouble, "is not configured, and holds events"},
		{"sinks", `[{"name":"s","configured":true,"position":{"unknown":"no answer"}}]`, console.Trouble, "has no known position"},
		{"journal", `{"budget_bytes":1,"seconds_to_full":14399}`, console.Trouble, "the journal is full in 3h59m"},
		{"journal", `{"budget_bytes":1,"seconds_to_full":14401}`, console.AllWell, "ALL WELL"},
		{"workspace", `{"known":true,"cause":"outage","error":"500"}`, console.Trouble, "the management API cannot be used (outage)"},
		{"streaming", `[{"project":"acme-portal","environment":"production","fight":{"undone":3,"since":"2026-03-04T10:12:03Z"}}]`, console.Trouble, "somebody else sets the stream of acme-portal/production again and again"},
		{"workspace", `{"known":false}`, console.NotAllKnown, "has not been asked yet"},
		{"settings", `[{"project":"p","subject":"project","error":"500"}]`, console.Trouble, "1 setting cannot be read"},
		{"ready", `{"ready":false,"parts":[{"name":"journal","state":"not_ready","reason":"full"}]}`, console.Trouble, "pushes are refused (journal)"},
		{"ready", `{"ready":true,"parts":[{"name":"sinks","state":"warning","reason":"1 of 1 fail"}]}`, console.AllWell, "ALL WELL"},
	} {
		sections := statusOf(t, "well")
		if c.section != "" {
			sections[c.section] = json.RawMessage(c.with)
		}
		s := readStatus(withVerdict(t, sections))
		assert.Equal(t, c.verdict, s.verdict().Verdict, "%s %s", c.section, c.with)
		assert.Contains(t, s.verdictLine(), c.says)
	}
	sections := statusOf(t, "well")
	delete(sections, "environments")
	s := readStatus(withVerdict(t, sections))
	assert.Equal(t, console.Trouble, s.verdict().Verdict, "a relay that does not tell of its environments is not all well")
}

// The reason of an environment that flows again tells of one gap, and the notes of the others.
func TestEachGapIsToldOnce(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 3, 4, 10, 0, 0, 0, time.UTC)
	told := health.Gap{Begun: at, Ended: at.Add(time.Minute), Cause: "refused", EventsLost: 7}
	reviewed := health.Gap{Begun: at.Add(time.Hour), Ended: at.Add(2 * time.Hour), Cause: "silent", EventsLost: 8, Reviewed: true}
	var s screen
	s.status.Relay.Now = at.Add(3 * time.Hour)
	var texts []string
	for _, note := range s.notes(&health.Status{State: health.Gapped, Since: told.Ended, Gaps: []health.Gap{told, reviewed}}) {
		texts = append(texts, note.text)
	}
	assert.Contains(t, strings.Join(texts, "\n"), "(silent)")
	assert.NotContains(t, strings.Join(texts, "\n"), "(refused)")
}

func TestRatesAndSparklines(t *testing.T) {
	t.Parallel()
	var p past
	at := time.Date(2026, 3, 4, 10, 0, 0, 0, time.UTC)
	answer := func(seconds, delivered int64) {
		s := relayStatus{Sinks: []console.Sink{{Name: "s", Delivery: &relay.Delivery{Events: delivered}}}}
		s.Relay.Now = at.Add(time.Duration(seconds) * time.Second)
		p.note(&s)
	}
	answer(0, 100)
	assert.Empty(t, p.rate("sink s"), "one answer gives no rate")
	answer(2, 100)
	answer(4, 140)
	assert.Equal(t, "20.0", p.rate("sink s"))
	assert.Equal(t, "▁█", p.spark("sink s"))
	answer(6, 7) // it has begun again
	answer(8, 7)
	assert.Equal(t, "▁█▁", p.spark("sink s"))
	for i := range int64(100) {
		answer(10+i, 7)
	}
	assert.Equal(t, pastKept, utf8.RuneCountInString(p.spark("sink s")))
	assert.Empty(t, new(past).spark("sink s"))
	assert.Empty(t, new(past).rate("sink s"))
}

func TestTextsForPeople(t *testing.T) {
	t.Parallel()
	for seconds, want := range map[float64]string{
		-1: "0s", 0: "0s", 0.25: "0.2s", 9.94: "9.9s", 9.96: "9s", 59: "59s", 61: "1m1s", 660: "11m", 3600: "1h", 7265: "2h1m", 90000: "1d1h", 864000: "10d",
	} {
		assert.Equal(t, want, spanText(seconds), "%v", seconds)
	}
	assert.Equal(t, "1,234,567", numberText(1234567))
	assert.Equal(t, "123", numberText(123))
	assert.Equal(t, []string{"0", "<0.1", "12.3", "1,234"}, []string{rateText(0), rateText(0.01), rateText(12.34), rateText(1234)})
	assert.Equal(t, "abc…xyz", cut("abcdefghijklmnopqrstuvwxyz", 7))
	assert.Equal(t, []string{"a b", "cde", "fgh", "i"}, wrap("a b cdefgh\n i", 3))
}

// The relay's answer is drawn whatever is in it.
func FuzzScreen(f *testing.F) {
	for _, name := range []string{"well", "trouble", "cut-off"} {
		text, err := os.ReadFile(filepath.Join("testdata", "status", name+".json"))
		require.NoError(f, err)
		f.Add(text, 80)
	}
	f.Add([]byte(`{"environments":[{"observed":{"events_per_second":1e308,"lateness_seconds":{"p99":-1e308}},"gaps":[{"events_lost":-1}]}]}`), 1)
	f.Fuzz(func(t *testing.T, text []byte, width int) {
		var sections map[string]json.RawMessage
		if json.Unmarshal(text, &sections) != nil {
			return
		}
		s := screen{status: readStatus(sections)}
		s.past.note(&s.status)
		uncoloured(t, s.draw(brush{true}, min(max(width, 1), 500)))
	})
}
