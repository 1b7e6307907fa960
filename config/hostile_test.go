package config

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// hostile are documents that would cost some YAML libraries, or a decoder without bounds, far more
// than their size.
func hostile() map[string]struct{ text, want string } {
	manyAliases := "environments:\n  - &e {project: a, environment: b, credentials: &c [" +
		strings.Repeat("{username: a},", 2000) + "]}\n" + strings.Repeat("  - *e\n", 2000)
	return map[string]struct{ text, want string }{
		"brackets":    {strings.Repeat("[", 40_000), "exceeded max depth"},
		"braces":      {strings.Repeat("{a: ", 250_000), "exceeded max depth"},
		"dashes":      {strings.Repeat("- ", 20_000), "exceeded max depth"},
		"keys":        {strings.Repeat("? ", 20_000), "exceeded max depth"},
		"anchors":     {"a: " + strings.Repeat("&a ", 20_000), "not valid YAML"},
		"documents":   {strings.Repeat("---\na\n", 5_000), "more than one YAML document"},
		"fields":      {strings.Repeat("a: b\n", 15_000), "and more"},
		"in a list":   {"sinks:\n" + strings.Repeat("- a: b\n", 10_000), "and more"},
		"tokens":      {"sinks:\n" + strings.Repeat("- a: b\n", 15_000), "and more"},
		"flow fields": {"ingest: {" + strings.Repeat("a: b,\n", 10_000) + "}", "and more"},
		"inline keys": {strings.Repeat("? a\n: b\n", 9_000), "and more"},
		"sections":    {strings.Repeat("log: {level: loud}\n", 900), "is given twice"},
		"blank lines": {"a: |" + strings.Repeat("\n  ", 300_000), "more than 20000 lines"},
		"comments":    {strings.Repeat("# a\n", 15_000) + "a: b", "unknown field"},
		"aliases":     {manyAliases, "and more"},
		"expansion":   {strings.ReplaceAll(manyAliases, "username: a", "api_key: a"), "aliases expand to too much"},
		"a circle":    {"environments: &a [*a]", "must hold fields"},
		"a self":      {"data_dir: &a *a", "not valid YAML"},
		"size":        {strings.Repeat("#", maxFile+1), "larger than"},
		"bytes":       {"data_dir: \xff", "not valid UTF-8"},
	}
}

// TestHostileDocuments bounds the cost of each. It counts allocations, since they do not depend
// on the machine's load; so it is not parallel.
func TestHostileDocuments(t *testing.T) {
	const most = 256 << 20
	for name, c := range hostile() {
		t.Run(name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, _, err := parse(t, c.text)
			runtime.ReadMemStats(&after)
			require.Error(t, err)
			assert.Contains(t, err.Error(), c.want)
			t.Logf("%d KiB allocated for a document of %d KiB", (after.TotalAlloc-before.TotalAlloc)>>10, len(c.text)>>10)
			assert.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(most))
		})
	}
}

// Of many problems the first ones are shown, in order, followed by a line about the others.
func TestProblemsAreBounded(t *testing.T) {
	t.Parallel()
	items := strings.Repeat("- {password: hunter2}\n", 5_000)
	_, _, err := parse(t, minimal+"sinks:\n"+items)
	var found Errors
	require.ErrorAs(t, err, &found)
	require.Len(t, found, maxProblems+1)
	assert.Equal(t, "sinks[0].password", found[0].Field)
	assert.Equal(t, "and more: only 1000 are shown; correct them, and check again", found[maxProblems].Reason)
	assert.Equal(t, "relay.yaml", found[maxProblems].File)

	secrets := strings.Repeat(`{username: "a", password: plain},`, 2_000)
	_, warnings, err := parse(t, strings.Replace(minimal, `{api_key: "${KEY}"}`, secrets, 1))
	require.ErrorAs(t, err, &found)
	require.Len(t, warnings, maxProblems+1)
}

// A secret with a "*" at its beginning is an alias, also as a name.
func TestAnAliasIsNotShown(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"data_dir: *hunter2\n",
		"*hunter2 : x\n",
		"data_dir: &hunter2 /tmp\nlog: {*hunter2 : x}\n",
		"sinks: [{name: w, webhook: {headers: {? [hunter2] : x}}}]\n",
	} {
		_, warnings, err := parse(t, text)
		require.Error(t, err)
		assert.NotContains(t, fmt.Sprint(err, warnings), "hunter2", text)
	}
}
