package match

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// given are variables by name. All others are empty.
type given map[string]any

func (g given) Parent() Variables { return nil }

func (g given) ResolveName(name string) (any, bool) {
	if v, ok := g[name]; ok {
		return v, true
	}
	switch name {
	case "time", "received":
		return time.Unix(0, 0), true
	case "labels":
		return map[string]any{}, true
	case "body":
		return nil, true
	}
	return "", true
}

func withBody(body string) given { return given{"body": Decode([]byte(body)), "raw": body} }

func holds(t testing.TB, text string, vars Variables) (bool, error) {
	t.Helper()
	c, err := Compile(text)
	require.NoError(t, err, text)
	require.Equal(t, text, c.String())
	return c.Holds(vars)
}

func TestHolds(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 3, 1, 22, 30, 0, 0, time.UTC)
	vars := given{
		"id": "e1", "source": "/projects/p", "type": "event_log.Login", "subject": "s", "project": "p", "environment": "live",
		"time": at, "received": at.Add(2 * time.Hour), "raw": "text",
		"labels": map[string]any{"level": []string{"warn", "error"}},
		"body": Decode([]byte(`{"status":"error","n":3,"big":18446744073709551615,"f":2.5,"list":[1,{"a":"b"}],"nil":null,
			"user":{"email":"a@example.com"},"status2":"x","status2":"y","huge":1e999}`)),
	}
	for _, text := range []string{
		`type == "event_log.Login" && id == "e1" && source == "/projects/p" && subject == "s"`,
		`type.startsWith("event_log.") && project in ["p", "q"] && environment.matches("^(live|test)$")`,
		`received - time > duration("1h") && time.getHours() == 22 && time < timestamp("2026-03-02T00:00:00Z")`,
		`"error" in labels.level && labels.level[0] == "warn" && !has(labels.team) && !("team" in labels)`,
		`body.status == "error" && has(body.user.email) && !has(body.user.phone) && body.nil == null`,
		`body.n == 3 && body.n < 4 && body.n + 1 == 4 && body.n < 3.5 && body.f > 2 && body.f == 2.5`,
		`body.big == 18446744073709551615u && body.big > 9223372036854775807 && body.huge > body.big`,
		`body.list.exists(x, x == 1) && body.list[1].a == "b" && size(body.list) == 2`,
		`body.?missing.orValue("none") == "none" && body[?"status"].orValue("") == "error"`,
		`body.status2 == "y"`, // the last, as with encoding/json
		`body.user.email.endsWith("@example.com")`,
		`raw.contains("ex")`,
	} {
		ok, err := holds(t, text, vars)
		require.NoError(t, err, text)
		assert.True(t, ok, text)
		ok, err = holds(t, "!("+text+")", vars)
		require.NoError(t, err, text)
		assert.False(t, ok, text)
	}
}

func TestABodyThatIsNoJSON(t *testing.T) {
	t.Parallel()
	for _, body := range []string{"", "plain text", `{"a":1} x`, `{"a":`, "null", strings.Repeat("[", 20_000) + strings.Repeat("]", 20_000)} {
		ok, err := holds(t, `body == null && raw.size() >= 0`, withBody(body))
		require.NoError(t, err)
		assert.True(t, ok, body)
	}
	ok, err := holds(t, `body == 7`, withBody(" 7 "))
	require.NoError(t, err)
	assert.True(t, ok)
}

func TestFailuresNameThePlaceAndNothingOfTheEvent(t *testing.T) {
	t.Parallel()
	body := withBody(`{"secret":"hunter2","n":1,"list":[` + strings.Repeat("1,", 4000) + `1]}`)
	for text, want := range map[string]string{
		`body.status == "error"`:                     "column 5: there is no such key; test for it with has()",
		"type == \"\" &&\n  body.a.b == 1":           "line 2, column 9: there is no such key",
		`body.secret > 7`:                            "column 13: this operation does not take values of these types",
		`int(body.secret) == 1`:                      "column 4: an operation failed on the values",
		`body[body.secret] == 1`:                     "there is no such key",
		`body.list.all(x, body.list.all(y, x == y))`: "it takes more work than 1000000 units",
	} {
		ok, err := holds(t, text, body)
		require.ErrorContains(t, err, want, text)
		assert.NotContains(t, err.Error(), "hunter2")
		assert.False(t, ok)
	}
}

func TestCompileErrors(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		``:                                    "column 1: syntax error: mismatched input 'the end'",
		`type ==`:                             "column 8: syntax error: mismatched input 'the end'",
		`type = "x"`:                          "column 6: syntax error: token recognition error at: '= '",
		"type == \"a\" &&\n  bodi.x == 1":     "line 2, column 3: undeclared reference to 'bodi' (did you mean 'body'?)",
		`body.flag`:                           "column 1: it may be of any type, and must be true or false",
		`id`:                                  "column 1: it is of the type string, and must be true or false",
		`labels.level == "error"`:             "column 14: found no matching overload for '_==_' applied to '(list(string), string)'",
		`id.matches("(")`:                     "column 12: ",
		`time > timestamp("yesterday")`:       "column 18: ",
		`id == "a" && x == 1 || subject == y`: "column 14: undeclared reference to 'x'; the names are id, source, type, ",
		`nowhere(id)`:                         "column 8: undeclared reference to 'nowhere'",
	} {
		c, err := Compile(text)
		require.ErrorContains(t, err, want, text)
		assert.Nil(t, c)
		var found Errors
		require.ErrorAs(t, err, &found)
		assert.Positive(t, found[0].Column)
		assert.Positive(t, found[0].Line)
	}
	_, err := Compile(`id == "a" && x == 1 || subject == y`)
	require.ErrorContains(t, err, "; column 35: undeclared reference to 'y'", "all of them at once")
}

// BenchmarkTheCostliest measures the highest cost of one event: see maxCost.
func BenchmarkTheCostliest(b *testing.B) {
	c, err := Compile(`body.all(x, body.all(y, x == y))`)
	require.NoError(b, err)
	vars := withBody("[" + strings.Repeat("1,", 50_000) + "1]")
	for b.Loop() {
		if _, err := c.Holds(vars); err == nil {
			b.Fatal("it must be too much")
		}
	}
}

func BenchmarkHolds(b *testing.B) {
	body := []byte(`{"event_id":"evt-1","action":"login","status":"error","user":{"id":"u1","email":"a@example.com"},"n":1}`)
	for _, text := range []string{`type == "event_log.Login"`, `body.status == "error"`, `has(body.user) && body.user.email.endsWith("@example.com")`} {
		b.Run(text, func(b *testing.B) {
			c, err := Compile(text)
			require.NoError(b, err)
			b.ReportAllocs()
			for b.Loop() {
				vars := given{"type": "event_log.Other"}
				if strings.Contains(text, "body") {
					vars["body"] = Decode(body)
				}
				if _, err := c.Holds(vars); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func FuzzDecode(f *testing.F) {
	for _, s := range []string{`{"a":[1,2.5,-0,1e400,"\ud800"],"a":null}`, `[[`, `7`, ``, "\xff", `{"a":18446744073709551616}`} {
		f.Add(s)
	}
	c, err := Compile(`body == body && (body == null || size(raw) > 0)`)
	if err != nil {
		f.Fatal(fmt.Sprint(err))
	}
	f.Fuzz(func(t *testing.T, body string) {
		ok, err := c.Holds(withBody(body))
		if err == nil {
			require.True(t, ok, body)
		}
	})
}
