package config

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestNamesThatNothingHas(t *testing.T) {
	t.Parallel()
	for match, want := range map[string]string{
		`projects: [shop]`:                    "",
		`projects: ["sh*"]`:                   "",
		`projects: [auditrelay]`:              "",
		`projects: [shop, shopp]`:             "projects[1]: matches nothing: no project of that name is in environments",
		`projects: ["x*"]`:                    "projects[0]: matches nothing: no project of that name is in environments",
		`environments: ["", live]`:            "",
		`environments: ["*"]`:                 "",
		`environments: [prod]`:                "environments[0]: matches nothing: no environment of that name is in environments",
		`types: ["*"]`:                        "",
		`types: ["*.changed", "e*"]`:          "",
		`types: [event_log, event_log.x]`:     "",
		`types: ["event_log.*", "settings*"]`: "",
		`types: [trail.damaged]`:              "",
		`types: [settings.change]`:            "types[0]: matches nothing; did you mean settings.changed?",
		`types: [setings.changed]`:            "types[0]: matches nothing; did you mean settings.changed?",
		`types: ["eventlog.*"]`:               "types[0]: matches nothing: types begin with event_log.",
		`types: [user_login]`:                 "types[0]: matches nothing: types begin with event_log.",
	} {
		_, warnings, err := parse(t, minimal+"sinks:\n  - {name: f, match: {"+match+"}, file: {path: x}}\n")
		require.NoError(t, err, match)
		if want == "" {
			assert.Empty(t, warnings, match)
			continue
		}
		require.Len(t, warnings, 1, match)
		assert.Contains(t, warnings[0].String(), "sinks[0].match."+want)
		assert.Equal(t, 6, warnings[0].Line, match)
	}
}

func TestVariablesWithoutBraces(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`{data_dir: $HOME/relay}`:                                         "data_dir",
		`{data_dir: "/var/lib/$${HOME}"}`:                                 "",
		`{data_dir: /srv/$5}`:                                             "",
		`{workspace: {key_id: $KEY_ID}}`:                                  "workspace.key_id",
		`{workspace: {secret: $KEY}}`:                                     "workspace.secret",
		`{workspace: {secret: "${KEY}"}}`:                                 "",
		`{workspace: {secret: "a$KEY"}}`:                                  "", // a secret may contain anything
		`{sinks: [{match: {cel: "raw.matches('^[A-Z]+$')"}}]}`:            "",
		`{sinks: [{kafka: {sasl: {username: "${KEY}", password: $PW}}}]}`: "sinks[0].kafka.sasl.password",
	} {
		d := newDecoder(environment(map[string]string{"KEY": "hunter2-of-some-length"}))
		d.document([]byte(text))
		require.Empty(t, d.errors, text)
		got := ""
		for _, w := range d.warnings {
			if w.Reason != "the secret stands in the file; better write ${NAME} for an environment variable, or file:PATH" {
				got += w.Field
				assert.Contains(t, w.Reason, "${NAME}")
				assert.NotContains(t, w.Reason, "$KEY")
			}
		}
		assert.Equal(t, want, got, text)
	}
}
