package timeline

import (
	"bytes"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/internal/trail/audit"
)

// filled is an index of n entries with a sentence each, without a trail.
func filled(tb testing.TB, n int, sentence func(i int) string) *Index {
	tb.Helper()
	x := Open(Options{Path: filepath.Join(tb.TempDir(), FileName)})
	require.NoError(tb, x.create())
	tb.Cleanup(x.closeFile)
	for i := range n {
		detail, err := json.Marshal(told{Summary: sentence(i), Severity: "low", Direction: "weaker", Cause: "outside"})
		require.NoError(tb, err)
		require.NoError(tb, x.take(audit.Recorded{Entry: audit.Entry{
			Index: int64(i), Type: "settings.changed", Project: "acme", Environment: fmt.Sprintf("env-%02d", i%20),
			Subject: "sms_country_codes", Time: start.Add(time.Duration(i) * time.Second), Detail: detail,
		}}))
	}
	require.NoError(tb, x.flush())
	return x
}

func (x *Index) reading() *reading {
	return &reading{table: x.rows.snapshot(), texts: texts{file: x.file, size: x.end}}
}

// A text is found wherever it stands in the file, and one that stands nowhere is sought
// once.
func TestATextIsFoundInALongFile(t *testing.T) {
	t.Parallel()
	const n = 12_000 // several times what is read at once
	x := filled(t, n, func(i int) string {
		if i == 7 {
			return "Country ĀĀ, by change 7"
		}
		return fmt.Sprintf("Country %s allowed, by change %d", strings.Repeat("Ä", i%40), i)
	})
	for text, want := range map[string][]int64{
		"BY CHANGE 1199":  {1199, 11990, 11991, 11992, 11993, 11994, 11995, 11996, 11997, 11998, 11999},
		"by change 0":     {0},
		"acme":            nil, // stands between the sentences
		"äÄ BY CHANGE 82": nil,
		"āĀ, BY CHANGE 7": {7},
	} {
		var got []int64
		f := Filter{Text: text}
		require.NoError(t, x.reading().each(t.Context(), 0, f, func(r Row) error { got = append(got, r.Index); return nil }))
		assert.Equal(t, want, got, text)

		f.Limit = 3
		found, err := x.reading().newest(t.Context(), f)
		require.NoError(t, err)
		if newest := want[max(0, len(want)-f.Limit):]; len(newest) > 0 {
			assert.Equal(t, newest, found, text)
		} else {
			assert.Empty(t, found, text)
		}
	}
}

// A summary names one statement of several; each of them is found.
func TestEachStatementIsFound(t *testing.T) {
	t.Parallel()
	x := Open(Options{Path: filepath.Join(t.TempDir(), FileName)})
	require.NoError(t, x.create())
	t.Cleanup(x.closeFile)
	said := lineOf(audit.Recorded{Entry: audit.Entry{
		Type: "settings.changed", Project: "acme", Environment: "live", Subject: "sms_country_codes", Time: start,
		Detail: json.RawMessage(`{"summary":"country CU allowed, and 1 more change","statements":[{"sentence":"country CU allowed"},{"sentence":"country KP allowed"}]}`),
	}})
	unsaid := lineOf(audit.Recorded{Entry: audit.Entry{
		Type: "settings.changed", Project: "acme", Environment: "live", Subject: "sms_country_codes", Time: start,
		Before: json.RawMessage(`[]`), After: json.RawMessage(`["IR","KP"]`),
	}})
	x.pending = []line{said, unsaid}
	require.NoError(t, x.flush())
	for text, want := range map[string][]string{
		"kp`":      {"country `IR` allowed, and 1 more change"},
		"kp allow": {"country CU allowed, and 1 more change"},
		"allowed":  {"country CU allowed, and 1 more change", "country `IR` allowed, and 1 more change"},
	} {
		var got []string
		require.NoError(t, x.reading().each(t.Context(), 0, Filter{Text: text}, func(r Row) error { got = append(got, r.Summary); return nil }))
		assert.Equal(t, want, got, text)
	}
}

// BenchmarkATextThatIsNowhere seeks a text in a million sentences.
func BenchmarkATextThatIsNowhere(b *testing.B) {
	x := filled(b, 1_000_000, func(i int) string { return fmt.Sprintf("country GB allowed, by change %d", i) })
	for b.Loop() {
		found, err := x.reading().newest(b.Context(), Filter{Text: "nobody has written this", Limit: 50})
		require.NoError(b, err)
		require.Empty(b, found)
	}
}

func TestLowerCase(t *testing.T) {
	t.Parallel()
	all := make([]byte, 256+5)
	for i := range all {
		all[i] = byte(i)
	}
	for n := range len(all) {
		text := all[n:]
		want := bytes.Map(func(r rune) rune {
			if 'A' <= r && r <= 'Z' {
				return r + 'a' - 'A'
			}
			return r
		}, text[:max(0, min(len(text), 128-n))])
		got := lower(nil, text)
		require.Equal(t, string(want), string(got[:len(want)]), n)
		require.Equal(t, string(text[min(len(text), max(0, 128-n)):min(len(text), max(0, 256-n))]), string(got[min(len(got), max(0, 128-n)):min(len(got), max(0, 256-n))]), "bytes of other characters, from %d on", n)
	}
}
