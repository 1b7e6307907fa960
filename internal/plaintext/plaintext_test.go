package plaintext_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"

	"github.com/auditrelay/auditrelay/internal/plaintext"
)

func TestSteers(t *testing.T) {
	t.Parallel()
	for _, r := range "\x1b\n\x7f\u0085\u00ad\u200b\u200d\u202e\u2028\u2029\u2066\ufeff\u3164\ufe0f\ufffd\U000e0041\U000e0101" {
		assert.True(t, plaintext.Steers(r), "%U", r)
	}
	for _, r := range "a é 漢 🙂`<·\u00a0" {
		assert.False(t, plaintext.Steers(r), "%U", r)
	}
}

func TestALineIsOneLine(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"":                        "",
		"a\r\n\tb\x1b[31mred é ":  "a b [31mred é",
		"a\u202e\u2028b\xffc":     "a b c",
		"1234567890123456":        "1234567890123456",
		"12345678901234567":       "123456789012345…",
		"12345678901234 67890":    "12345678901234…",
		strings.Repeat("é", 1000): strings.Repeat("é", 15) + "…",
	} {
		assert.Equal(t, want, plaintext.Line(text, 16), "%q", text)
	}
}

func FuzzText(f *testing.F) {
	f.Add("a\x1b[2J\u202e\u200b\u2028\x7f\U000e0041\n: z", 8)
	f.Add("\xff\xc3 é", 1)
	f.Fuzz(func(t *testing.T, text string, limit int) {
		replaced := plaintext.Replace(text, '·')
		if strings.ContainsFunc(replaced, plaintext.Steers) || utf8.RuneCountInString(replaced) != utf8.RuneCountInString(text) {
			t.Errorf("%q became %q", text, replaced)
		}
		limit = max(1, limit)
		line := plaintext.Line(text, limit)
		if strings.ContainsFunc(line, plaintext.Steers) || utf8.RuneCountInString(line) > limit || strings.Contains(line, "  ") {
			t.Errorf("%q became %q", text, line)
		}
		if again := plaintext.Line(line, limit); again != line {
			t.Errorf("%q became %q, and that %q", text, line, again)
		}
	})
}
