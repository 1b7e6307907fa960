package meaning

import (
	"encoding/json"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode"

	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/internal/workspace/kinds"
)

func mustJSON(t testing.TB, v any) json.RawMessage {
	t.Helper()
	raw, err := json.Marshal(v)
	require.NoError(t, err)
	return raw
}

// requireBounded checks the bounds of every reading, even of hostile states.
func requireBounded(t *testing.T, r Reading) {
	t.Helper()
	require.LessOrEqual(t, len(r.Statements), maxStatements)
	require.LessOrEqual(t, len(mustJSON(t, r.Statements)), maxBytes+2)
	require.LessOrEqual(t, len(r.Summary), 4096)
	for i, s := range r.Statements {
		for _, text := range []string{s.Sentence, s.Witness} {
			for _, c := range text {
				require.True(t, unicode.IsPrint(c), "%q", text)
			}
		}
		require.Contains(t, rules, s.Rule)
		require.True(t, i == 0 || rank(r.Statements[i-1].Severity) >= rank(s.Severity), "worst first")
	}
}

// TestHostileStates: readings of large states are bounded, and take time in proportion to
// the states' size. In proportion to its square, this would take hours.
func TestHostileStates(t *testing.T) {
	t.Parallel()
	n := 20_000
	if testing.Short() {
		n /= 4
	}
	each := func(format string) string {
		var b strings.Builder
		for i := range n {
			b.WriteString(strings.ReplaceAll(format, "#", strconv.Itoa(i)) + ",")
		}
		return strings.TrimSuffix(b.String(), ",")
	}
	long := strings.Repeat("x", 1<<20)
	roles := func(action string) string {
		return `{"custom_resources":[{"resource_id":"r","available_actions":[` + each(`"a#"`) + `]}],
			"custom_roles":[` + each(`{"role_id":"u#","permissions":[{"resource_id":"r","actions":["`+action+`"]}]}`) + `]}`
	}
	for name, c := range map[string]struct {
		subject, before, after string
		statements             int
	}{
		"many countries":             {kinds.SMSCountryCodes.Name, `[]`, `[` + each(`"c#"`) + `]`, n},
		"wildcards":                  {kinds.RBACPolicy.Name, roles("none"), roles("*"), n},
		"many members":               {kinds.PasswordStrength.Name, `{}`, `{` + each(`"m#":1`) + `}`, n},
		"long names":                 {kinds.RBACPolicy.Name, `{}`, `{"` + long + `":{` + each(`"m#":1`) + `}}`, 1},
		"long name, many changes":    {"x", `{"` + long + `":[` + each(`1`) + `]}`, `{"` + long + `":[` + each(`2`) + `]}`, n},
		"long role":                  {kinds.RBACPolicy.Name, `{}`, `{"custom_roles":[{"role_id":"` + long + `","x":[` + each(`1`) + `]}]}`, 2},
		"same ids":                   {kinds.TrustedTokenProfiles.Name, `[]`, `[` + each(`{"profile_id":"p","jwks_url":"x"}`) + `]`, n},
		"many links":                 {kinds.EmailTemplates.Name, `[]`, `[{"template_id":"t","custom_html_customization":{"html_content":"` + each(`//h#.x/`) + `"}}]`, n + 1},
		"many lines":                 {kinds.EmailTemplates.Name, `[{"template_id":"t","custom_html_customization":{"html_content":"` + each(`a#\n`) + `"}}]`, `[{"template_id":"t","custom_html_customization":{"html_content":"` + each(`b#\n`) + `"}}]`, 1},
		"long text":                  {kinds.EmailTemplates.Name, `[{"template_id":"t","custom_html_customization":{"html_content":"` + long + long + `"}}]`, `[{"template_id":"t","custom_html_customization":{"html_content":"` + long + `"}}]`, 1},
		"deep":                       {"x", strings.Repeat(`{"a":`, 900) + `[` + each(`1`) + `]` + strings.Repeat(`}`, 900), strings.Repeat(`{"a":`, 900) + `[` + each(`2`) + `]` + strings.Repeat(`}`, 900), n},
		"many slashes in a template": {kinds.EmailTemplates.Name, `[]`, `[{"template_id":"t","custom_html_customization":{"html_content":"` + each(`/////`) + `"}}]`, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, err := Read(c.subject, json.RawMessage(c.before), json.RawMessage(c.after))
			require.NoError(t, err)
			requireBounded(t, r)
			require.GreaterOrEqual(t, len(r.Statements)+r.Omitted, c.statements)
		})
	}
}

// TestReorderedIsEqual: unordered lists may come in any order, and it means nothing.
func TestReorderedIsEqual(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(9, 10))
	distinct := func(list []string) []string { slices.Sort(list); return slices.Compact(list) }
	for range pairs(t, 2, testing.Short()) {
		a := randomPolicy(r)
		// With one id twice, a list has an order.
		a.Own, a.Custom = nil, a.Custom[:min(len(a.Custom), 1)]
		a.Member.Permissions = nil
		for _, id := range distinct(some(r, bruteResources)) {
			a.Member.Permissions = append(a.Member.Permissions, brutePermission{id, some(r, bruteActions)})
		}
		a.Admin, a.Scopes, a.Roles = a.Member, nil, []bruteHolder{{Role: "a", Permissions: a.Member.Permissions}, {Role: "b"}}
		b := a
		b.Member.Permissions, b.Roles = slices.Clone(a.Member.Permissions), slices.Clone(a.Roles)
		slices.Reverse(b.Member.Permissions)
		slices.Reverse(b.Roles)
		for i, permission := range b.Member.Permissions {
			b.Member.Permissions[i].Actions = slices.Clone(permission.Actions)
			slices.Reverse(b.Member.Permissions[i].Actions)
		}
		got := readPair(t, kinds.RBACPolicy.Name, a, b)
		require.Equal(t, Reading{Direction: Neutral, Severity: Info}, got, "%+v\n%+v", a, b)
	}
	for _, c := range []struct{ subject, before, after string }{
		{kinds.SMSCountryCodes.Name, `["DE","US"]`, `["US","DE"]`},
		{kinds.TrustedTokenProfiles.Name, `[{"profile_id":"a","pem_files":[{"pem_file_id":"1"},{"pem_file_id":"2"}]},{"profile_id":"b"}]`, `[{"profile_id":"b"},{"pem_files":[{"pem_file_id":"2"},{"pem_file_id":"1"}],"profile_id":"a"}]`},
		{kinds.EmailTemplates.Name, `[{"template_id":"a"},{"template_id":"b"}]`, `[{"template_id":"b"},{"template_id":"a"}]`},
		{kinds.Project.Name, `{"a":1.0,"b":"é"}`, `{"b":"\u00e9","a":1}`},
	} {
		got, err := Read(c.subject, json.RawMessage(c.before), json.RawMessage(c.after))
		require.NoError(t, err)
		require.Equal(t, Reading{Direction: Neutral, Severity: Info}, got, c.subject)
	}
}

func FuzzRead(f *testing.F) {
	f.Add([]byte(holds(`"read"`)), []byte(holds(`"*","x"`)))
	f.Add([]byte(ludsState), []byte(swap(ludsState, "LUDS", "ZXCVBN", "12", "null")))
	f.Add([]byte(`["DE","DE"]`), []byte("[\"DE\",1,\"`\\n\\u202e\"]"))
	f.Add([]byte(oneProfile), []byte(swap(oneProfile, `"x"`, `7`, `"i"`, `null`)))
	f.Add([]byte(oneMail), []byte(swap(oneMail, "example.com/in", `evil/\\\\x\n\n`)))
	f.Add([]byte(loki), []byte(datadog))
	f.Add([]byte(`{"LOGIN":null}`), []byte(oneProject))
	f.Add([]byte(``), []byte(`null`))
	names := append(sortedUnion(subjects, nil), "another")
	f.Fuzz(func(t *testing.T, a, b []byte) {
		for _, subject := range names {
			got, err := Read(subject, a, b)
			if err != nil {
				return
			}
			again, err := Read(subject, a, b)
			require.NoError(t, err)
			require.Equal(t, got, again)
			requireBounded(t, got)
			self, err := Read(subject, b, b)
			require.NoError(t, err)
			require.Equal(t, Reading{Direction: Neutral, Severity: Info}, self)
		}
	})
}
