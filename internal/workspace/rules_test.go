package workspace

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/config"
)

func judge(t *testing.T, rules []config.PolicyRule, setting, state string) (names []string) {
	t.Helper()
	set, err := CompileRules(rules)
	require.NoError(t, err)
	for _, v := range set.Judge("shop", "live", setting, []byte(state)) {
		assert.Empty(t, v.Fault, v.Rule)
		names = append(names, v.Rule)
	}
	return names
}

// TestPacks holds each rule that is shipped against a state that keeps it, and one that does not.
func TestPacks(t *testing.T) {
	t.Parallel()
	cases := map[string]struct{ kept, violated []string }{
		"baseline/password_length": {
			[]string{`{"validation_policy":"ZXCVBN"}`, `{"validation_policy":"LUDS","luds_min_password_length":12}`},
			[]string{`{"validation_policy":"LUDS","luds_min_password_length":11}`, `{"validation_policy":"LUDS","luds_min_password_length":null}`, `{}`},
		},
		"baseline/breach_check": {[]string{`{"check_breach_on_creation":true}`}, []string{`{"check_breach_on_creation":false}`, `{}`, `{"check_breach_on_creation":null}`}},
		"baseline/no_wildcard_grant": {
			[]string{`{}`, `{"custom_roles":null}`, `{"custom_roles":[{"role_id":"a","permissions":[{"resource_id":"r","actions":["read"]}]},{"permissions":null}]}`},
			[]string{`{"custom_roles":[{"permissions":[{"actions":["read"]},{"actions":["read","*"]}]}]}`},
		},
		"baseline/token_issuer_and_audience": {
			[]string{`[]`, `[{"issuer":"https://a","audience":"b"}]`},
			[]string{`[{"issuer":"","audience":"b"}]`, `[{"issuer":"a","audience":"b"},{"issuer":"a","audience":null}]`},
		},
		"baseline/token_keys_over_https": {
			[]string{`[]`, `[{"jwks_url":""},{}]`, `[{"jwks_url":"https://a"}]`},
			[]string{`[{"jwks_url":"http://a"}]`},
		},
		"strict/breach_check_at_login": {[]string{`{"check_breach_on_authentication":true}`}, []string{`{}`}},
		"strict/weak_passwords_end":    {[]string{`{"validate_on_authentication":true}`}, []string{`{"validate_on_authentication":false}`}},
		"strict/no_accounts_by_token":  {[]string{`[]`, `[{"can_jit_provision":false},{}]`}, []string{`[{"can_jit_provision":true}]`}},
	}
	for _, p := range config.PolicyPacks() {
		assert.NotEmpty(t, p.About, p.Name)
		for _, r := range p.Rules {
			c, is := cases[r.Name]
			require.True(t, is, "%s has no case here", r.Name)
			assert.NotEmpty(t, r.Reason, r.Name)
			assert.Contains(t, config.Severities(), r.Severity, r.Name)
			for _, state := range c.kept {
				assert.Empty(t, judge(t, []config.PolicyRule{r}, r.Setting, state), state)
			}
			for _, state := range c.violated {
				assert.Equal(t, []string{r.Name}, judge(t, []config.PolicyRule{r}, r.Setting, state), state)
			}
		}
	}
}

func TestJudge(t *testing.T) {
	t.Parallel()
	set, err := CompileRules([]config.PolicyRule{
		{Name: "countries", Setting: "sms_country_codes", CEL: `state.all(c, c in ["US", "CA"])`, Severity: "low"},
		{Name: "live", Setting: "sms_country_codes", CEL: `environment != "live" || size(state) > 0`, Severity: "high"},
		{Name: "faulty", Setting: "sms_country_codes", CEL: `state.name == "x"`, Severity: "medium"},
		{Name: "other", Setting: "project", CEL: `false`, Severity: "critical"},
	})
	require.NoError(t, err)
	assert.Equal(t, []string{"project", "sms_country_codes"}, set.Settings())
	found := set.Judge("shop", "live", "sms_country_codes", []byte(`["US","FR"]`))
	require.Len(t, found, 2)
	assert.Equal(t, "countries", found[0].Rule)
	assert.Empty(t, found[0].Fault)
	assert.Equal(t, "faulty", found[1].Rule)
	assert.Contains(t, found[1].Fault, "cannot be evaluated")
	assert.NotContains(t, found[1].Fault, "FR", "a fault holds nothing of the state")
	assert.Equal(t, "medium", worst(found))
	assert.Empty(t, worst(nil))
}

func TestCompileNamesTheRule(t *testing.T) {
	t.Parallel()
	_, err := CompileRules([]config.PolicyRule{{Name: "a", CEL: "state.x"}})
	require.ErrorContains(t, err, "compile the rule a: column 1: it may be of any type")
	_, err = CompileRules([]config.PolicyRule{{Name: "b", CEL: "body.x == 1"}})
	require.ErrorContains(t, err, "the names are state, project, environment")
}
