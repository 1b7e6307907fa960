package timeline

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/internal/testbed/trailtest"
	"github.com/auditrelay/auditrelay/internal/trail/audit"
)

// scene is a small trail for all filters.
func scene(t *testing.T, trail *audit.Trail) {
	t.Helper()
	told := func(e audit.Entry, detail string) audit.Entry { e.Detail = json.RawMessage(detail); return e }
	other := change(30, 8, 12)
	other.Environment = "test"
	add(t, trail,
		change(0, 0, 8),
		told(change(20, 8, 12), `{"summary":"minimum password length 8 → 12","severity":"low","direction":"stronger","cause":"outside"}`),
		told(other, `{"summary":"MINIMUM password length 8 → 12","severity":"low","direction":"stronger","cause":"relay"}`),
		told(change(40, 12, 6), `{"summary":"minimum password length 12 → 6","severity":"high","direction":"weaker","cause":"outside"}`),
		audit.Entry{
			Type: "settings.checked", Project: "acme", Environment: "live", Subject: "settings_checks", Time: at(50),
			Detail: checked("password_strength_config", 49, policy(6)),
		},
		audit.Entry{Type: "sink.retired", Project: "-", Subject: "sinks/old", Time: at(60)},
	)
}

func TestFilters(t *testing.T) {
	t.Parallel()
	trail := trailtest.New(t)
	scene(t, trail)
	v, _ := keep(t, filepath.Join(t.TempDir(), FileName), trail)
	third, last := int64(3), int64(5)
	for name, c := range map[string]struct {
		filter Filter
		want   []int64
	}{
		"all":              {Filter{}, []int64{0, 1, 2, 3, 4, 5}},
		"newest":           {Filter{Limit: 2}, []int64{4, 5}},
		"newest of some":   {Filter{Limit: 2, Type: "settings.changed"}, []int64{2, 3}},
		"since":            {Filter{Since: at(40)}, []int64{3, 4, 5}},
		"since long ago":   {Filter{Since: time.Date(1500, 1, 1, 0, 0, 0, 0, time.UTC), Until: at(40)}, []int64{0, 1, 2}},
		"until far off":    {Filter{Since: at(40), Until: time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)}, []int64{3, 4, 5}},
		"until":            {Filter{Until: at(40)}, []int64{0, 1, 2}},
		"type":             {Filter{Type: "settings.*"}, []int64{0, 1, 2, 3, 4}},
		"project":          {Filter{Project: "-"}, []int64{5}},
		"environment":      {Filter{Environment: "test"}, []int64{2}},
		"setting":          {Filter{Setting: "password*"}, []int64{0, 1, 2, 3}},
		"unknown setting":  {Filter{Setting: "colour"}, nil},
		"severity":         {Filter{Severity: "medium"}, []int64{3, 5}},
		"direction":        {Filter{Direction: "stronger"}, []int64{1, 2}},
		"cause":            {Filter{Cause: "relay"}, []int64{2}},
		"text in any case": {Filter{Text: "Minimum"}, []int64{1, 2, 3}},
		"text and limit":   {Filter{Text: "minimum", Limit: 1}, []int64{3}},
		"unreviewed":       {Filter{Unreviewed: true}, []int64{1, 2, 3, 5}},
		"index":            {Filter{Index: &third}, []int64{3}},
		"a part":           {Filter{From: &third, Before: &last}, []int64{3, 4}},
		"newest of a part": {Filter{Before: &third, Limit: 2}, []int64{1, 2}},
		"some of a part":   {Filter{Before: &third, Limit: 1, Direction: "stronger", Environment: "live"}, []int64{1}},
		"none of a part":   {Filter{From: &last, Limit: 1, Direction: "stronger"}, nil},
		"states":           {Filter{States: true, Environment: "live"}, []int64{0, 1, 3}},
		"two":              {Filter{Direction: "stronger", Environment: "live"}, []int64{1}},
	} {
		assert.Equal(t, c.want, indices(list(t, v, c.filter)), name)
	}
	row := list(t, v, Filter{Index: &third})[0]
	assert.Equal(t, Row{
		Index: 3, Time: at(40), Type: "settings.changed", Project: "acme", Environment: "live", Setting: "password_strength_config",
		Severity: "high", Direction: "weaker", Cause: "outside", Actor: "unknown", Summary: "minimum password length 12 → 6",
	}, row)
	assert.Equal(t, "sinks/old: the sink was retired: the journal keeps nothing for it any more", list(t, v, Filter{Limit: 1})[0].Summary)

	for want, f := range map[string]Filter{
		`severity "bad": write one of info`: {Severity: "bad"},
		`direction "up": write one of`:      {Direction: "up"},
		"the time is empty":                 {Since: at(1), Until: at(1)},
		"limit -1":                          {Limit: -1},
	} {
		require.ErrorContains(t, f.Check(), want)
	}
}

func TestAnnotationsMarkTheirEntry(t *testing.T) {
	t.Parallel()
	trail := trailtest.New(t)
	scene(t, trail)
	path := filepath.Join(t.TempDir(), FileName)
	v, stop := keep(t, path, trail)
	of, err := trail.Get(t.Context(), 3)
	require.NoError(t, err)
	a := Annotation{Index: 3, Ticket: "SEC-7", Reviewer: "ada", Note: "intended", Person: audit.Person{User: "u", Host: "h"}}
	entry, err := a.Entry(of)
	require.NoError(t, err)
	entry.Time = at(70)
	index := add(t, trail, entry)
	forged := entry // somebody says he has seen another entry there
	forged.Detail = json.RawMessage(`{"index":1,"leaf":"AAAA","reviewer":"eve","user":"u","host":"h"}`)
	add(t, trail, forged)

	check := func(v *Index) {
		require.NoError(t, v.Ready(t.Context()))
		assert.Equal(t, []int64{2, 5}, indices(list(t, v, Filter{Unreviewed: true})))
		assert.Equal(t, "ada (claimed) reviewed entry 3, ticket SEC-7: intended", list(t, v, Filter{Index: &index})[0].Summary)
		got := entries(t, v, Filter{Index: &a.Index})[0]
		require.Len(t, got.Reviews, 1)
		assert.Equal(t, []any{"ada", index, false}, []any{got.Reviews[0].Reviewer, got.Reviews[0].Entry, got.Reviews[0].Differs})
		one := int64(1)
		assert.True(t, entries(t, v, Filter{Index: &one})[0].Reviews[0].Differs)
	}
	check(v)
	stop()
	v, _ = keep(t, path, trail)
	check(v)
}

func entries(t *testing.T, v *Index, f Filter) (all []Entry) {
	t.Helper()
	require.NoError(t, v.Entries(t.Context(), f, func(e Entry) error { all = append(all, e); return nil }))
	return all
}

func TestWholeEntriesOneByOneAndInOnePass(t *testing.T) {
	t.Parallel()
	trail := trailtest.New(t)
	scene(t, trail)
	v, _ := keep(t, filepath.Join(t.TempDir(), FileName), trail)
	f := Filter{Setting: "password*"}
	pass := entries(t, v, f)
	f.Limit = 10
	assert.Equal(t, pass, entries(t, v, f))
	require.Len(t, pass, 4)
	assert.JSONEq(t, string(policy(6)), string(pass[3].After))
	of, err := trail.Get(t.Context(), 3)
	require.NoError(t, err)
	assert.Equal(t, of.Leaf.String(), pass[3].Leaf)
}

// Whatever an earlier process has left in the file, of this trail or of another one, a start makes the
// index from the trail.
func TestTheFileIsDerived(t *testing.T) {
	t.Parallel()
	trail := trailtest.New(t)
	scene(t, trail)
	path := filepath.Join(t.TempDir(), FileName)
	v, stop := keep(t, path, trail)
	require.Len(t, list(t, v, Filter{}), 6)
	add(t, trail, change(70, 6, 7))
	want := list(t, v, Filter{})
	require.Len(t, want, 7, "an entry is listed as soon as it is there")
	stop()
	whole, err := os.ReadFile(path)
	require.NoError(t, err)
	for name, content := range map[string][]byte{"left": whole, "cut": whole[:len(whole)/2], "longer": append(bytes.Clone(whole), whole...), "damaged": bytes.Repeat([]byte("x"), len(whole)), "empty": nil} {
		require.NoError(t, os.WriteFile(path, content, 0o600))
		v, stop := keep(t, path, trail)
		assert.Equal(t, want, list(t, v, Filter{}), name)
		assert.Len(t, list(t, v, Filter{Text: "LUDS"}), len(list(t, v, Filter{Text: "luds"})), name)
		stop()
		made, err := os.ReadFile(path)
		require.NoError(t, err)
		assert.Equal(t, whole, made, name)
	}
	require.NoError(t, os.Remove(path))
	v, _ = keep(t, path, trail)
	assert.Equal(t, want, list(t, v, Filter{}), "lost")
}

// A clock that jumped out of the years 1678 to 2261 makes entries of the last time or the first one that the
// index knows.
func TestEntriesOfAFarTime(t *testing.T) {
	t.Parallel()
	trail := trailtest.New(t)
	far := change(1, 8, 10)
	far.Time = time.Date(3000, 1, 1, 0, 0, 0, 0, time.UTC)
	add(t, trail, change(0, 6, 8), far)
	v, _ := keep(t, filepath.Join(t.TempDir(), FileName), trail)
	assert.Equal(t, []int64{1}, indices(list(t, v, Filter{Since: at(500)})))
}

func TestEntriesWithoutAType(t *testing.T) {
	t.Parallel()
	trail := trailtest.New(t)
	scene(t, trail)
	v, _ := keep(t, filepath.Join(t.TempDir(), FileName), trail)
	for _, f := range []Filter{{Without: "settings.*"}, {Without: "settings.*", Project: "*"}} {
		rows := list(t, v, f)
		require.NotEmpty(t, rows)
		require.Less(t, len(rows), len(list(t, v, Filter{})))
		for _, r := range rows {
			require.NotContains(t, r.Type, "settings.")
		}
	}
}

func TestFollow(t *testing.T) {
	t.Parallel()
	trail := trailtest.New(t)
	scene(t, trail)
	v, _ := keep(t, filepath.Join(t.TempDir(), FileName), trail)
	from, err := v.List(t.Context(), Filter{Limit: 1}, func(Row) error { return nil })
	require.NoError(t, err)
	require.EqualValues(t, 6, from)
	add(t, trail, change(70, 6, 7), audit.Entry{Type: "sink.retired", Project: "-", Subject: "sinks/b", Time: at(71)}, change(72, 7, 8))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var got []int64
	err = v.Follow(ctx, from, Filter{Type: "settings.*", Limit: 1}, func(r Row) error {
		if got = append(got, r.Index); r.Index == 8 {
			cancel()
		}
		return nil
	})
	require.ErrorIs(t, err, context.Canceled)
	assert.Equal(t, []int64{6, 8}, got)
}

func TestFailuresAreSentencesAndNeedNoReview(t *testing.T) {
	t.Parallel()
	trail := trailtest.New(t)
	failed := audit.Entry{
		Type: "settings.failed", Project: "acme", Environment: "live", Subject: "rbac_policy", Time: at(0),
		Before: json.RawMessage(`{}`), After: json.RawMessage(`{"rbac_policy":"http_500"}`), // as looks.Failures enters it
	}
	unset := failed
	unset.Type, unset.Subject, unset.Before, unset.After = "streaming.put_failed", "event_log_streaming", nil, nil
	add(t, trail, failed, unset)
	v, _ := keep(t, filepath.Join(t.TempDir(), FileName), trail)
	rows := list(t, v, Filter{})
	assert.Equal(t, []string{"rbac_policy: it cannot be read", "medium"}, []string{rows[0].Summary, rows[0].Severity})
	assert.Equal(t, []string{"event_log_streaming: the relay could not set it", "high"}, []string{rows[1].Summary, rows[1].Severity})
	assert.Equal(t, []int64{1}, indices(list(t, v, Filter{Unreviewed: true})))
	all, err := v.Settings(t.Context(), Filter{})
	require.NoError(t, err)
	assert.Empty(t, all, "a failure shows no state")
}
