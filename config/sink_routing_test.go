package config

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/config/secret"
)

func TestRoutingWarnings(t *testing.T) {
	t.Parallel()
	env := environment(map[string]string{"KEY": "0123456789abcdef"})
	_, warnings, err := Parse("x", []byte(`data_dir: /tmp/relay
environments:
  - {project: shop, environment: live, credentials: [{api_key: "${KEY}"}]}
sinks:
  - {name: a, file: {path: a}, match: {}, redact: {}}
  - {name: b, file: {path: b}, redact: {hash_key: "${KEY}", remove: [/user, /user/email, /users/*/email, /users]}}
  - {name: c, file: {path: c}, redact: {hash_key: "${KEY}", remove: [/a/b/c, /ab], hash: [/a, /abc]}}
  - {name: d, file: {path: d}, match: {environments: ["", "live*"]}, redact: {hash_key: "${KEY}", hash: [/a/b, /a/c]}}
`), env)
	require.NoError(t, err)
	var texts []string
	for _, w := range warnings {
		texts = append(texts, w.String())
	}
	assert.Equal(t, []string{
		"sinks[0].match: has no effect: it chooses everything",
		"sinks[0].redact: has no effect: neither remove nor hash nor labels names anything",
		"sinks[1].redact.remove[1]: has no effect: sinks[1].redact.remove[0] takes everything around it",
		"sinks[1].redact.remove[2]: has no effect: sinks[1].redact.remove[3] takes everything around it",
		"sinks[1].redact.hash_key: has no effect without hash",
		"sinks[2].redact.remove[0]: has no effect: sinks[2].redact.hash[0] takes everything around it",
	}, texts)
}

func TestTheExampleOfRoutingIsValid(t *testing.T) {
	t.Parallel()
	cfg, d := decodeAll(t)
	k := &checker{places: d.places}
	require.NotEmpty(t, cfg.Sinks[0].Match.CEL)
	k.match("match", cfg.Sinks[0].Match)
	cfg.Sinks[0].Redact.HashKey = secret.New("0123456789abcdef")
	k.redact("redact", cfg.Sinks[0].Redact)
	assert.Empty(t, k.errors)
	assert.Empty(t, k.warnings)
}

// Faulty expressions are also reported to a program that makes its own configuration.
func TestValidateCompilesExpressions(t *testing.T) {
	t.Parallel()
	c := &Config{
		DataDir:      "/tmp/relay",
		Environments: []Environment{{Project: "p", Environment: "e", Credentials: []Credential{{APIKey: secret.New("0123456789abcdef0123456789abcdef")}}}},
		Sinks: []Sink{{
			Name: "a", File: &File{Path: "a"}, Match: &Match{CEL: `id == "a" && body.x = 1`},
			Redact: &Redact{Remove: []string{"x"}},
		}},
	}
	c.SetDefaults()
	err := c.Validate()
	require.ErrorContains(t, err, `sinks[0].match.cel: "id == \"a\" && body.x = 1": column 21: syntax error`)
	require.ErrorContains(t, err, `sinks[0].redact.remove[0]: "x": column 1: a JSON pointer begins with "/"`)
	c.Sinks[0].Match.CEL, c.Sinks[0].Redact.Remove[0] = `id == "a" && body.x == 1`, "/x"
	require.NoError(t, c.Validate())
}
