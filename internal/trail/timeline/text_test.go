package timeline

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
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
	return &reading{table: x.rows.snapshot(), texts: texts{file: x.file}}
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
		require.NoError(t, x.reading().list(t.Context(), f, func(r Row) error { got = append(got, r.Index); return nil }))
		assert.Equal(t, want, got, text)

		f.Limit = 3
		found, err := x.reading().chosen(t.Context(), f)
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
		require.NoError(t, x.reading().list(t.Context(), Filter{Text: text}, func(r Row) error { got = append(got, r.Summary); return nil }))
		assert.Equal(t, want, got, text)
	}
}

// All bytes, at each place in a word, and letters whose lower case is longer, shorter or as long.
func TestFoldingKeepsEachLetterItsLength(t *testing.T) {
	t.Parallel()
	all := make([]byte, 256+5)
	for i := range all {
		all[i] = byte(i)
	}
	for n := range len(all) {
		want := bytes.Clone(all[n:])
		for i, b := range want {
			if 'A' <= b && b <= 'Z' {
				want[i] = b + 'a' - 'A'
			}
		}
		require.Equal(t, string(want), string(appendFolded(nil, all[n:])), n)
	}
	for text, want := range map[string]string{
		"MINIMUM 8 → 12, ÄÖÜ, ДОМ": "minimum 8 → 12, äöü, дом",
		"\u0130, \u212a, \u023a":   "\u0130, \u212a, \u023a", // their lower case has 1, 1 and 3 bytes
		"\xffÄ\xc3":                "\xffä\xc3",
	} {
		require.Equal(t, "before "+want, string(appendFolded([]byte("before "), []byte(text))), text)
	}
}

// Texts of few letters, so that nearly everything that is sought is somewhere nearly: a search over
// blocks finds what is found by looking at each text.
func TestASearchMissesNothing(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(23, 1))
	word := func(letters string, most int) string {
		runes, text := []rune(letters), []rune{}
		for range random.IntN(most + 1) {
			text = append(text, runes[random.IntN(len(runes))])
		}
		return string(text)
	}
	for _, letters := range []string{"aB", "abcDEF 0123→Ä", "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789 -_Éß→…\u202e"} {
		sentences := make([]string, 3*blockRows+17)
		for i := range sentences {
			sentences[i] = letters[:1] + word(letters, []int{1, 30, 300}[random.IntN(3)]) // an empty one is described anew
		}
		sentences[blockRows] = strings.Repeat("long", 100_000) // cut
		x := filled(t, len(sentences), func(i int) string { return sentences[i] })
		found := 0
		for range 400 {
			from := sentences[random.IntN(len(sentences))]
			at := random.IntN(len(from))
			text := strings.ToValidUTF8(from[at:min(len(from), at+1+random.IntN(9))], "")
			if random.IntN(2) == 0 {
				text = word(letters, 6)
			}
			var want, got []int64
			for i, s := range sentences {
				if strings.Contains(string(appendFolded(nil, []byte(bounded(s, maxSummary)))), string(appendFolded(nil, []byte(text)))) {
					want = append(want, int64(i))
				}
			}
			require.NoError(t, x.reading().list(t.Context(), Filter{Text: text}, func(r Row) error { got = append(got, r.Index); return nil }))
			require.Equal(t, want, got, "%q", text)
			newest, err := x.reading().chosen(t.Context(), Filter{Text: text, Limit: 7})
			require.NoError(t, err)
			require.Equal(t, fmt.Sprint(want[max(0, len(want)-7):]), fmt.Sprint(newest), "%q", text)
			found += len(want)
		}
		require.NotZero(t, found)
	}
}

// Most blocks are never read for a text that few entries have.
func TestASearchPassesOverBlocks(t *testing.T) {
	t.Parallel()
	const n = 40 * blockRows
	x := filled(t, n, func(i int) string { return fmt.Sprintf("country GB allowed, by change %d", i) })
	for text, most := range map[string]int{"nobody has written this": 1, "BY CHANGE 5005": 3, "zq": 1, "~": 1} {
		p, read := phraseOf(text), 0
		for block := range x.rows.n / blockRows {
			if p.mayBeIn(&x.rows, block) {
				read++
			}
		}
		assert.LessOrEqual(t, read, most, text)
	}
}

// BenchmarkSearch looks for texts in a million sentences, a page of them at a time.
func BenchmarkSearch(b *testing.B) {
	const n = 1_000_000
	x := filled(b, n, func(i int) string {
		return fmt.Sprintf("the breach check of template `welcome-%06x` is off: role `support-%d` gained read on %d resources → reviewed", (i*7919)%(1<<24), i%300, i%7)
	})
	middle, severity := int64(n/2), "low"
	for name, f := range map[string]Filter{
		"absent":                {Text: "nobody has written this"},
		"absent letters":        {Text: "zq"},
		"absent letter":         {Text: "~"},
		"absent of frequent":    {Text: "is off: role `support-7` gained read on 7"},
		"rare":                  {Text: fmt.Sprintf("%06x", 7919*(n/3)%(1<<24))},
		"two words":             {Text: fmt.Sprintf("welcome-%06x` is off", 7919*(n/3)%(1<<24))},
		"frequent":              {Text: "BREACH check"},
		"now and then":          {Text: "support-17`"},
		"other letters":         {Text: "ÄÖ"},
		"absent, filtered":      {Text: "nobody has written this", Environment: "env-07", Severity: severity},
		"rare, last page":       {Text: "support-17`", Before: new(int64(20_000))},
		"frequent, middle":      {Text: "breach", Before: &middle},
		"frequent, environment": {Text: "breach", Environment: "env-07"},
		"no text":               {Environment: "env-07", Severity: "high"},
		"no text, nothing fits": {Environment: "env-none", Severity: "high"},
	} {
		f.Limit = 51
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				_, err := x.reading().chosen(b.Context(), f)
				require.NoError(b, err)
			}
		})
	}
}
