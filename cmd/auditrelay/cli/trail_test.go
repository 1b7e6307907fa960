package cli

import (
	"bytes"
	"encoding/csv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/internal/trail/audit"
	"github.com/auditrelay/auditrelay/internal/trail/timeline"
)

var day = time.Date(2026, 3, 1, 8, 0, 0, 0, time.UTC)

func row(index int64, summary string) timeline.Row {
	return timeline.Row{
		Index: index, Time: day, Type: "settings.changed", Project: "acme", Environment: "live", Setting: "rbac_policy",
		Severity: "high", Direction: "weaker", Cause: "outside", Summary: summary,
	}
}

func TestRowsArePrintedInEachForm(t *testing.T) {
	t.Parallel()
	for form, want := range map[string]string{
		"table": "REVIEWED  WHAT\n       7  2026-03-01T08:00:00Z  high      weaker     acme/live                 rbac_policy               outside                   -         role·[31m·, \"x\"\n",
		"json":  `"severity":"high","direction":"weaker","cause":"outside","reviewed":false,"summary":"role\u001b[31m\u202e, \"x\""}` + "\n",
	} {
		var out bytes.Buffer
		list := rowsTo(&out, form, false)
		require.NoError(t, list.add(row(7, "role\x1b[31m\u202e, \"x\"")))
		assert.Contains(t, out.String(), want, "the first row waits for nothing")
		require.NoError(t, list.end())
	}
	var out bytes.Buffer
	print := timeline.CSV(&out)
	shown := map[string]string{
		`role, "x"`: `role, "x"`, "=1+1": "'=1+1", "@x": "'@x", "+x": "'+x", "-x": "'-x", "a=1": "a=1",
		" =1": "' =1", "＝1": "'＝1", "\t=1": "·=1", "": "",
		"ada\x1b[2J\u009b31m\u202e\nnote": "ada·[2J·31m··note",
	}
	for summary := range shown {
		require.NoError(t, print(timeline.Entry{Row: row(7, summary)}))
	}
	records, err := csv.NewReader(&out).ReadAll()
	require.NoError(t, err)
	require.Len(t, records, 1+len(shown))
	var want, got []string
	for _, summary := range shown {
		want = append(want, summary)
	}
	for _, record := range records[1:] {
		got = append(got, record[10])
	}
	assert.ElementsMatch(t, want, got, "no cell is a formula, or steers the terminal")

	out.Reset()
	require.NoError(t, rowsTo(&out, "table", false).end())
	assert.Equal(t, "no entries\n", out.String())
}

func TestAStateSaysHowSureItIs(t *testing.T) {
	t.Parallel()
	s := timeline.State{
		Where: timeline.Where{Project: "acme", Environment: "live", Setting: "rbac_policy"}, At: day, Known: true,
		Value: []byte(`{"a":1}`), Entry: row(3, "first look"), Seen: day.Add(-time.Hour),
	}
	text := func() string {
		var out bytes.Buffer
		require.NoError(t, show(&out, s, printSetting))
		return out.String()
	}
	assert.Contains(t, text(), "entry 3, recorded at 2026-03-01T08:00:00Z: first look")
	assert.Contains(t, text(), "no later change, and no later look is known to have seen it so")
	s.Seen = day.Add(time.Hour)
	assert.Contains(t, text(), "no later change; last seen so by a look that began at 2026-03-01T09:00:00Z")
	s.Seen = day.Add(-time.Hour)
	assert.Contains(t, text(), "\"a\": 1")
	s.Next = &timeline.Next{Entry: row(4, "role gone"), Window: &audit.Window{After: s.Seen, Until: day.Add(time.Hour)}, Value: []byte(`{"a":2}`)}
	assert.Contains(t, text(), "until entry 4")
	assert.NotContains(t, text(), "\"a\": 2")
	s.Uncertain = true
	assert.Contains(t, text(), "UNCERTAIN: it changed after 2026-03-01T07:00:00Z")
	assert.Less(t, strings.Index(text(), "\"a\": 1"), strings.Index(text(), "\"a\": 2"), "both states, the older first")
	s = timeline.State{Where: s.Where, At: day}
	assert.Contains(t, text(), "nothing is known of it at that time")
}
