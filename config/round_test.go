package config

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// watched is a configuration of n environments, two in each project.
func watched(n int, more string) []byte {
	var b strings.Builder
	b.WriteString("data_dir: x\nworkspace: {base_url: https://api.example.com, key_id: k, secret: \"${KEY}\"" + more + "\nenvironments:\n")
	for i := range n {
		fmt.Fprintf(&b, "- {project: p%d, environment: e%d, stream: observe}\n", i/2, i)
	}
	return []byte(b.String())
}

func TestRound(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		environments int
		more         string
		want         string
		warned       bool
	}{
		"one":                 {1, "}", "a look at all settings: 15 requests in 3s; all looks need 0.1 requests per second", false},
		"a hundred":           {100, "}", "a look at all settings: 950 requests in 9m30s; all looks need 6.5 requests per second", true},
		"each minute":         {100, ", requests_per_second: 20}\nsettings: {interval: 1m}", "a look at all settings: 950 requests in 57s; all looks need 19.2 requests per second", false},
		"templates every 10m": {100, ", requests_per_second: 20}\nsettings: {interval: 1m, intervals: {email_templates: 10m, default_email_templates: 10m}}", "a look at all settings: 950 requests in 57s; all looks need 11.7 requests per second", false},
		"no settings":         {100, "}\nsettings: {disabled: true}", "a look at all settings: 0 requests in 0s; all looks need 3.3 requests per second", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg, warnings, err := Parse("relay.yaml", watched(tc.environments, tc.more), environment(map[string]string{"KEY": "hunter2-key-of-some-length"}))
			require.NoError(t, err)
			assert.Equal(t, tc.want, cfg.Round().String())
			var about []string
			for _, w := range warnings {
				if w.Field == "workspace.requests_per_second" {
					about = append(about, w.Reason)
				}
			}
			if assert.Len(t, about, map[bool]int{true: 1}[tc.warned]) && tc.warned {
				assert.Contains(t, about[0], "6.5 requests per second, and 5 are allowed: a look at all settings takes 9m30s")
			}
			assert.True(t, cfg.Environments[0].Stream.Observe)
		})
	}
	assert.Empty(t, (&Config{}).Round().String())
	assert.Equal(t, 2*time.Minute, Settings{Interval: time.Minute, Intervals: map[string]time.Duration{"project": 2 * time.Minute}}.Every("project"))
}
