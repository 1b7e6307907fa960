package relay

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

var templateEvent = Event{Type: "event_log.Login", Project: "shop", Environment: "live"}

func TestTemplateAppend(t *testing.T) {
	t.Parallel()
	upper := func(dst []byte, value string) []byte { return append(dst, strings.ToUpper(value)...) }
	for _, c := range []struct {
		text, want, escaped, mapped string
		constant                    bool
	}{
		{"", "", "", "", true},
		{"events", "events", "events", "events", true},
		{"{type}", "event_log.Login", "EVENT_LOG.LOGIN", "*", false},
		{"a.{project}.{environment}.{type}.b", "a.shop.live.event_log.Login.b", "a.SHOP.LIVE.EVENT_LOG.LOGIN.b", "a.*.*.*.b", false},
		{"{project}{project}", "shopshop", "SHOPSHOP", "**", false},
	} {
		tmpl := ParseTemplate(c.text)
		assert.Equal(t, "x"+c.want, string(tmpl.Append([]byte("x"), &templateEvent, nil)))
		assert.Equal(t, c.escaped, string(tmpl.Append(nil, &templateEvent, upper)))
		assert.Equal(t, c.mapped, tmpl.Map("*"))
		assert.Equal(t, c.text, tmpl.Text())
		assert.Equal(t, c.constant, tmpl.Constant(), c.text)
	}
}

// TestNamesHaveNoEmptyParts, because a topic "auth." cannot exist.
func TestTemplateNamesHaveNoEmptyParts(t *testing.T) {
	t.Parallel()
	escape := func(dst []byte, value string) []byte { return append(dst, "<"+value+">"...) }
	whole := Event{Type: "settings.changed", Project: "shop"}
	for text, want := range map[string]string{
		"auth.{environment}":                "auth._",
		"{environment}":                     "_",
		"a.{project}.{environment}.{type}b": "a.<shop>._.<settings.changed>b",
		"audit":                             "audit",
	} {
		tmpl := ParseTemplate(text)
		assert.Equal(t, want, string(tmpl.AppendName(nil, &whole, escape)))
		assert.Equal(t, string(tmpl.Append(nil, &templateEvent, escape)), string(tmpl.AppendName(nil, &templateEvent, escape)), "nothing is empty")
	}
}

// The configuration refuses these; here they harm nothing.
func TestTemplateUnknownNamesStay(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"a.{kind}", "é.{Type}", "{}", "{type", "a}", "{ type}"} {
		assert.Equal(t, text, string(ParseTemplate(text).Append(nil, &templateEvent, nil)))
	}
}

func TestAppendAllocatesNothing(t *testing.T) {
	tmpl := ParseTemplate("a.{project}.{environment}.{type}")
	buf := make([]byte, 0, 128)
	assert.Zero(t, testing.AllocsPerRun(100, func() {
		buf = tmpl.Append(buf[:0], &templateEvent, func(dst []byte, value string) []byte { return append(dst, value...) })
		buf = tmpl.AppendName(buf[:0], &templateEvent, func(dst []byte, value string) []byte { return append(dst, value...) })
	}))
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{"", "a", "{type}", "a.{project}.{environment}.{type}", "{", "}", "{}", "{{type}}", "\xff{type}"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		tmpl := ParseTemplate(text)
		// It consists only of its names and literal text.
		want := strings.NewReplacer("{type}", "T", "{project}", "P", "{environment}", "E").Replace(text)
		e := Event{Type: "T", Project: "P", Environment: "E"}
		assert.Equal(t, want, string(tmpl.Append(nil, &e, nil)))
		assert.Equal(t, tmpl.Constant(), tmpl.Map("x") == tmpl.Map("y"))
	})
}
