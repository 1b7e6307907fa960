package loki

import (
	"strings"
	"testing"
	"time"

	"github.com/grafana/loki/pkg/push"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const testLabels = `{app="a; 3 errors like: has timestamp too old: x", service_name="auditrelay"}`

// The texts are those of a real Loki 3.7.8.
func TestReadRefusal(t *testing.T) {
	t.Parallel()
	oldest := time.Date(2026, 11, 21, 11, 48, 29, 0, time.UTC)
	for name, c := range map[string]struct {
		text string
		want refusal
	}{
		"behind": {
			"entry with timestamp 2026-11-21 09:48:29.088877061 +0000 UTC ignored, reason: 'entry too far behind, entry timestamp is: 2026-11-21T09:48:29Z, oldest acceptable timestamp is: 2026-11-21T11:48:29Z',\n" +
				"entry with timestamp 2026-11-21 09:48:29.08887707 +0000 UTC ignored, reason: 'entry too far behind, entry timestamp is: 2026-11-21T09:48:29Z, oldest acceptable timestamp is: 2026-11-21T11:48:29Z',\n" +
				"user 'fake', total ignored: 15 out of 16 for stream: " + testLabels + "\n",
			refusal{behind: 15, of: 16, oldest: oldest},
		},
		"unordered writes are off": {
			"entry with timestamp 2026-11-21 09:48:29 +0000 UTC ignored, reason: 'entry out of order',\nuser 'fake', total ignored: 1 out of 2 for stream: {}\n",
			refusal{behind: 1, of: 2},
		},
		"before 3.0": {
			"entry with timestamp 2023-01-01 00:00:00 +0000 UTC ignored, reason: 'entry too far behind, oldest acceptable timestamp is: 2026-11-21T11:48:29Z',\ntotal ignored: 1 out of 7",
			refusal{behind: 1, of: 7, oldest: oldest},
		},
		"one kind": {
			"entry for stream '" + testLabels + "' has timestamp too new: 2026-11-21T13:08:29Z",
			refusal{young: kind{1, "entry for stream '{}' has timestamp too new: 2026-11-21T13:08:29Z"}},
		},
		"several kinds": {
			"1 errors like: entry for stream '" + testLabels + "' has timestamp too old: 2026-11-13T04:48:31Z, oldest acceptable timestamp is: 2026-11-14T12:48:29Z; " +
				"2 errors like: entry for stream '" + testLabels + "' has timestamp too old: 2026-11-13T04:48:29Z, oldest acceptable timestamp is: 2026-11-14T12:48:29Z; " +
				"1 errors like: max entry size '262144' bytes exceeded for stream '" + testLabels + "' while adding an entry with length '300000' bytes; " +
				"4 errors like: stream '" + testLabels + "' has too many structured metadata labels: '130', limit: '128'. Please see `limits_config.max_structured_metadata_entries_count` or contact your Loki administrator to increase it; " +
				"1 errors like: stream '" + testLabels + "' has structured metadata too large: '70001' bytes, limit: '65536' bytes. Please see `limits_config.max_structured_metadata_size` or contact your Loki administrator to increase it",
			refusal{
				old:   kind{3, "entry for stream '{}' has timestamp too old: 2026-11-13T04:48:31Z, oldest acceptable timestamp is: 2026-11-14T12:48:29Z"},
				doubt: true,
			},
		},
		"labels": {
			"stream '{app=\"x\"}' has label value too long: 'x'",
			refusal{labels: "stream '{app=\"x\"}' has label value too long: 'x'"},
		},
		"too many labels": {
			"entry for stream '{}' has 20 label names; limit 15",
			refusal{mend: "entry for stream '{}' has 20 label names; limit 15"},
		},
		"unknown":          {"snappy: corrupt input", refusal{doubt: true}},
		"nothing":          {"", refusal{}},
		"more than of all": {"entry out of order, total ignored: 3 out of 2 for stream: {}", refusal{doubt: true}},
	} {
		assert.Equal(t, c.want, readRefusal(c.text, testLabels), name)
	}
}

func entriesAt(start time.Time, gap time.Duration, n int) []push.Entry {
	entries := make([]push.Entry, n)
	for i := range entries {
		entries[i] = push.Entry{Timestamp: start.Add(time.Duration(i) * gap), Line: strings.Repeat("x", i)}
	}
	return entries
}

func verdicts(fates []fate) string {
	var b strings.Builder
	for _, f := range fates {
		b.WriteByte("tlb?"[f.verdict])
	}
	return b.String()
}

func TestFates(t *testing.T) {
	t.Parallel()
	start := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	entries := entriesAt(start, time.Second, 6)
	for name, c := range map[string]struct {
		refusal
		want string
	}{
		"the first are behind":              {refusal{behind: 2, of: 6, oldest: start.Add(time.Second)}, "lltttt"},
		"all are behind":                    {refusal{behind: 6, of: 6, oldest: start.Add(time.Hour)}, "llllll"},
		"without a bound":                   {refusal{behind: 2, of: 6}, "lltttt"},
		"a bound that does not fit":         {refusal{behind: 2, of: 6, oldest: start.Add(-time.Minute)}, ""},
		"a bound that does not fit, beyond": {refusal{behind: 2, of: 6, oldest: start.Add(time.Minute)}, ""},
		"not all came to the ingester":      {refusal{behind: 2, of: 5, oldest: start.Add(2 * time.Second)}, "ll????"},
		"not all, and none is known":        {refusal{behind: 1, of: 5}, ""},
		"more than all":                     {refusal{behind: 1, of: 9, oldest: start}, ""},
		"ages":                              {refusal{old: kind{count: 1}, young: kind{count: 2}}, "btttbb"},
		"more than there are":               {refusal{old: kind{count: 4}, young: kind{count: 3}}, ""},
		"labels":                            {refusal{labels: "x"}, "bbbbbb"},
		"doubt":                             {refusal{old: kind{count: 1}, doubt: true}, ""},
		"nothing":                           {refusal{}, ""},
	} {
		assert.Equal(t, c.want, verdicts(c.fates(entries)), name)
	}
}

// For any text the refusals come to an end, since each round settles something or halves the
// push.
func FuzzRefusal(f *testing.F) {
	f.Add("entry out of order, oldest acceptable timestamp is: 2026-11-21T11:48:29Z', total ignored: 1 out of 3 for stream: {}", 3)
	f.Add("2 errors like: x has timestamp too old: y; 1 errors like: max entry size '1' bytes", 4)
	f.Add("has label value too long", 1)
	f.Add("12345678901 errors like: ; 1 errors like: ; ", 2)
	f.Fuzz(func(t *testing.T, text string, n int) {
		entries := entriesAt(time.Date(2026, 11, 21, 11, 48, 29, 0, time.UTC), time.Second/2, min(max(n, 1), 50))
		r := readRefusal(text, testLabels)
		require.GreaterOrEqual(t, r.of, r.behind)
		fates := r.fates(entries)
		if fates == nil {
			return
		}
		require.Len(t, fates, len(entries))
		settled := false
		for _, f := range fates {
			settled = settled || f.verdict == behind || f.verdict == bad
		}
		require.True(t, settled, "a refusal that refuses nobody: %q", text)
	})
}
