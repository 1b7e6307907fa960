package match

import (
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestMatches(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		pattern, name string
		want          bool
	}{
		{"", "", true},
		{"", "a", false},
		{"*", "", true},
		{"*", "anything", true},
		{"event_log.*", "event_log.Login", true},
		{"event_log.*", "event_log.", true},
		{"event_log.*", "event_log", false},
		{"event_log.*", "xevent_log.Login", false},
		{"*.changed", "settings.changed", true},
		{"*.changed", "settings.changed.", false},
		{"a*a", "a", false},
		{"a*a", "aa", true},
		{"a*b*c", "axxbxxc", true},
		{"a*b*c", "acb", false},
		{"a*bc*c", "abcc", true},
		{"a*bc*c", "abc", false},
		{"**", "x", true},
		{"Login", "login", false},
	} {
		assert.Equal(t, c.want, ParsePattern(c.pattern).Matches(c.name), "%q, %q", c.pattern, c.name)
	}
	assert.False(t, Pattern{}.Matches(""))
}

func FuzzMatches(f *testing.F) {
	f.Add("a*b*", "aabb")
	f.Add("*\n*", "\n")
	f.Fuzz(func(t *testing.T, pattern, name string) {
		if strings.ToValidUTF8(pattern, "") != pattern || strings.ToValidUTF8(name, "") != name {
			return
		}
		re := regexp.MustCompile(`(?s)^` + strings.ReplaceAll(regexp.QuoteMeta(pattern), `\*`, `.*`) + `$`)
		require.Equal(t, re.MatchString(name), ParsePattern(pattern).Matches(name))
	})
}
