package cli

import (
	"bytes"
	"context"
	"encoding/csv"
	"encoding/json"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/internal/control/console"
	"github.com/auditrelay/auditrelay/internal/plaintext"
	"github.com/auditrelay/auditrelay/internal/trail/audit"
	"github.com/auditrelay/auditrelay/internal/trail/timeline"
	"github.com/auditrelay/auditrelay/internal/workspace"
)

// hostile names fit in no column, or steer something.
var hostile = []string{
	strings.Repeat("x", 200), strings.Repeat("ä", 200), "a b,c\"d", "line\nbreak\r\n", "=cmd|' /C calc'!A0", " =1+1", "@SUM(1)", "\t-1", "+1", "＝1",
	"\x1b[31m\u202egnp.exe", "", "root@relay-1 (claims \"x) root@relay-1\")", "\x00\x9b2J", "=HYPERLINK(\"http://evil\")",
}

func hostileRow(text string) timeline.Row {
	return timeline.Row{Index: 7, Time: day, Type: text, Project: text, Environment: text, Setting: text, Severity: "high", Direction: "weaker", Cause: text, Actor: text, Summary: text}
}

// The columns of the table stand where their titles do, whatever the names are.
func TestColumnsStandForAnyName(t *testing.T) {
	t.Parallel()
	for _, text := range hostile {
		var out bytes.Buffer
		list := rowsTo(&out, "table", false)
		require.NoError(t, list.add(hostileRow(text)))
		require.NoError(t, list.end())
		lines := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
		require.Len(t, lines, 2, "%q", text)
		what := strings.Index(lines[0], "REVIEWED")
		runes := []rune(lines[1])
		require.Greater(t, len(runes), what+8)
		assert.Equal(t, "  -         ", string(runes[what-2:what+10]), "%q", lines[1])
		assert.False(t, strings.ContainsFunc(lines[1], plaintext.Steers), "%q", lines[1])
		assert.True(t, utf8.ValidString(lines[1]))
	}
}

// Each cell of the CSV is one cell with one line, and no formula.
func TestCSVOfHostileEntries(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	print := timeline.CSV(&out)
	state, err := json.Marshal(hostile)
	require.NoError(t, err)
	for _, text := range hostile {
		require.NoError(t, print(timeline.Entry{
			Row: hostileRow(text), Window: &audit.Window{After: day, Until: day.Add(time.Second)}, Before: state, After: state,
		}))
	}
	require.NoError(t, print(timeline.Entry{Row: timeline.Row{Index: 9, Missing: true, Summary: "lost"}}))
	records, err := csv.NewReader(&out).ReadAll()
	require.NoError(t, err)
	require.Len(t, records, 2+len(hostile))
	assert.Equal(t, "index time type project environment setting severity direction cause reviewed summary actor window_after window_until before after", strings.Join(records[0], " "),
		"new columns come last")
	for _, record := range records[1:] {
		for _, cell := range record {
			assert.NotContains(t, "=+-@＝＋－＠\t\r", string(append([]rune(strings.TrimSpace(cell)), 'x')[:1]), "%q", cell)
			assert.False(t, strings.ContainsFunc(cell, plaintext.Steers), "%q", cell)
		}
	}
	first := records[1]
	assert.Equal(t, []string{"2026-03-01T08:00:00Z", "2026-03-01T08:00:01Z"}, first[12:14])
	assert.True(t, json.Valid([]byte(first[14])), first[14])
	assert.True(t, json.Valid([]byte(first[15])), first[15])
	last := records[len(records)-1]
	assert.Equal(t, []string{"9", ""}, last[:2], "a lost entry has no time")
}

func TestWhoIsInEachForm(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ actor, cause, table, show, changes string }{
		{"ada@laptop", "relay", "ada@laptop", "ada@laptop", "by ada@laptop:"},
		{"root@r (claims ada@x)", "relay", "root@r (claims ada@x)", "root@r (claims ada@x)", "by root@r (claims ada@x):"},
		{"relay", "relay", "relay", "relay", "by this relay:"},
		{"unknown", "outside", "outside", "unknown", "by somebody outside:"},
		{"", "", "-", "", "by somebody outside:"},
	} {
		r := row(7, "s")
		r.Actor, r.Cause = c.actor, c.cause
		var table, js, whole bytes.Buffer
		for form, out := range map[string]*bytes.Buffer{"table": &table, "json": &js} {
			list := rowsTo(out, form, false)
			require.NoError(t, list.add(r))
			require.NoError(t, list.end())
		}
		assert.Contains(t, table.String(), "rbac_policy               "+c.table+"  ")
		assert.Equal(t, c.actor != "", strings.Contains(js.String(), `"actor":"`+c.actor+`"`), js.String())
		require.NoError(t, show(&whole, timeline.Entry{Row: r}, showEntry))
		assert.Equal(t, c.show != "", strings.Contains(whole.String(), "\nwho "), whole.String())
		assert.Contains(t, whole.String(), c.show)
		assert.Contains(t, changeText(&r), c.changes)
	}
}

func TestUndoIsSaid(t *testing.T) {
	t.Parallel()
	r := row(7, "s")
	changed := timeline.Entry{Row: r}
	assert.Contains(t, changed.Undo(), "the API has no operation that sets it: put it back in the dashboard")
	changed.Type = "settings.baseline"
	assert.Empty(t, changed.Undo(), "nothing changed")
	act := timeline.Entry{Row: timeline.Row{Type: "action.ended", Setting: "workspace_actions/secret.delete"}, Detail: json.RawMessage(`{"outcome":"done"}`)}
	assert.Contains(t, act.Undo(), "no operation that makes a secret")
	act.Detail = json.RawMessage(`{"outcome":"refused"}`)
	assert.Empty(t, act.Undo())
}

// A difference with one finding says it once.
func TestOneFindingIsSaidOnce(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	d := difference{"project", []byte(`{"name":"a"}`), []byte(`{"name":"b"}`)}
	require.NoError(t, d.print(&out, false))
	assert.Equal(t, 1, strings.Count(out.String(), "`a` → `b`"), out.String())
	assert.NotEqual(t, "\n", out.String()[:1])
	out.Reset()
	d = difference{"project", []byte(`{"name":"a","vertical":"B2B"}`), []byte(`{"name":"b","vertical":"B2C"}`)}
	require.NoError(t, d.print(&out, false))
	assert.Contains(t, out.String(), "and 1 more change", "the head sums up several")
}

func TestStatesArePrinted(t *testing.T) {
	t.Parallel()
	for state, want := range map[string]string{
		`"t-1"`:        "t-1\n",
		`["DE","FR"]`:  "[DE, FR]\n",
		`[]`:           "[]\n",
		`{"name":"a"}`: "name: a\n",
		`{"a.b":{"c":1},"a":{"b.c":2},"d e":3,"":4}`:                     "\"\": 4\na:\n    b.c: 2\na.b:\n    c: 1\nd e: 3\n",
		`[{"role_id":"r-1","more":{"x":1},"of":["a","b"]},{"name":"n"}]`: "NAME  OF  ROLE_ID\n-     2   r-1\nn     -   -\n",
	} {
		var out bytes.Buffer
		require.NoError(t, printOutcome(&out, "table", workspace.Outcome{Result: json.RawMessage(state)}))
		assert.Equal(t, want, out.String(), state)
	}
}

// policies is a trail with the policies of some environments.
type policies map[string]string

func (p policies) List(context.Context, console.ListTrail, func(timeline.Row) error) error {
	return nil
}

func (p policies) Entries(context.Context, timeline.Filter, func(timeline.Entry) error) error {
	return nil
}

func (p policies) Settings(_ context.Context, f timeline.Filter) (list []timeline.Setting, err error) {
	for _, env := range []string{"=live", "test", "unknown"} {
		if f.Environment == "" || f.Environment == env {
			list = append(list, timeline.Setting{Where: timeline.Where{Project: "acme", Environment: env, Setting: f.Setting}})
		}
	}
	return list, nil
}

func (p policies) At(_ context.Context, w timeline.Where, at time.Time) (timeline.State, error) {
	state, known := p[w.Environment]
	return timeline.State{Where: w, At: at, Known: known, Value: json.RawMessage(state)}, nil
}

// who-can answers for each environment; one without an answer does not hide the others.
func TestWhoCanInAllEnvironments(t *testing.T) {
	t.Parallel()
	policy := `{"custom_roles":[{"role_id":"editor","description":"","permissions":[{"resource_id":"documents","actions":["read"]}]}],
"custom_resources":[{"resource_id":"documents","description":"","available_actions":["read"]}]}`
	source := policies{"=live": policy, "test": policy}
	ask := func(form string, where whereFlags) (string, error) {
		var out bytes.Buffer
		answers, failed := whoCanIn(t.Context(), source, where, day, "read", "documents")
		require.NoError(t, printAnswers(&out, form, answers))
		return out.String(), failed
	}
	text, err := ask("table", whereFlags{})
	require.ErrorContains(t, err, "nothing is known of rbac_policy of acme/unknown")
	assert.Equal(t, 2, strings.Count(text, "WHO"), text)
	assert.Contains(t, text, "rbac_policy of acme/test at ")
	text, _ = ask("json", whereFlags{})
	d := json.NewDecoder(strings.NewReader(text))
	for _, env := range []string{"=live", "test"} {
		var a whoCanAnswer
		require.NoError(t, d.Decode(&a))
		assert.Equal(t, []string{"acme", env}, []string{a.Project, a.Environment})
	}
	text, _ = ask("csv", whereFlags{})
	records, err := csv.NewReader(strings.NewReader(text)).ReadAll()
	require.NoError(t, err)
	require.Len(t, records, 3)
	assert.Equal(t, []string{"acme", "'=live", "read", "documents"}, records[1][:4])
	text, err = ask("table", whereFlags{environment: "test"})
	require.NoError(t, err)
	assert.Equal(t, 1, strings.Count(text, "WHO"))
}
