package workspace

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/internal/testbed/trailtest"
	"github.com/auditrelay/auditrelay/internal/trail/audit"
)

func TestPoliciesAreEnteredOnce(t *testing.T) {
	t.Parallel()
	trail := trailtest.New(t)
	now := time.Date(2026, 11, 24, 8, 0, 0, 0, time.UTC)
	enter := func(environment, subject, after string) {
		t.Helper()
		e := audit.Entry{Type: "settings.changed", Project: "shop", Environment: environment, Subject: subject, Time: now}
		if after != "" {
			e.After = []byte(after)
		}
		_, err := trail.Append(t.Context(), e)
		require.NoError(t, err)
	}
	var exceptions []PolicyException
	watched := []config.Environment{{Project: "shop", Environment: "live"}}
	// A process of its own judges each time: nothing but the trail knows what was found before.
	judge := func() []PolicyStatus {
		t.Helper()
		p := policiesOf(t, PoliciesOptions{Trail: trail, Exceptions: exceptions, Environments: watched})
		before := trail.Size()
		require.NoError(t, p.Judge(t.Context(), now))
		after := trail.Size()
		require.NoError(t, p.Judge(t.Context(), now))
		require.Equal(t, after, trail.Size(), "what was entered is not entered again; before: %d", before)
		return p.Status()
	}
	newest := func(environment string) audit.Entry {
		t.Helper()
		e, found, err := trail.Last(t.Context(), "shop", environment, SubjectPolicies)
		require.NoError(t, err)
		require.True(t, found)
		return e
	}

	enter("live", "password_strength_config", `{"length":12}`)
	enter("retired", "password_strength_config", `{"length":1}`)
	size := trail.Size()
	require.Len(t, judge(), 1)
	require.Equal(t, size, trail.Size(), "a kept rule is no entry")

	enter("live", "password_strength_config", `{"length":8}`)
	status := judge()
	require.Equal(t, "length", status[0].Violations[0].Rule)
	e := newest("live")
	require.Equal(t, TypePolicyViolated, e.Type)
	require.Contains(t, string(e.Detail), `"summary":"the policy length is violated by password_strength_config: short passwords are guessed"`)
	require.Contains(t, string(e.Detail), `"severity":"high"`)

	enter("live", "sms_country_codes", `["US"]`) // another rule's setting, which keeps it
	size = trail.Size()
	judge()
	require.Equal(t, size, trail.Size())

	exceptions = []PolicyException{{Rule: "length", Project: "shop", Environment: "live", Until: now.Add(time.Hour), Reason: "CHG-17"}}
	judge()
	e = newest("live")
	require.Equal(t, TypePolicyEnded, e.Type)
	require.Contains(t, string(e.Detail), "excepted until 2026-11-24T09:00:00Z: CHG-17")
	now = now.Add(time.Hour)
	judge()
	require.Equal(t, TypePolicyViolated, newest("live").Type, "the exception is over")

	enter("live", "sms_country_codes", `["US","FR"]`)
	enter("live", "password_strength_config", `{"length":14}`)
	judge()
	e = newest("live")
	require.Equal(t, TypePolicyViolated, e.Type)
	require.Contains(t, string(e.Detail), "countries is violated")
	require.Contains(t, string(e.Detail), "length is no longer violated")

	enter("live", "sms_country_codes", "") // the setting is gone
	judge()
	require.Equal(t, TypePolicyEnded, newest("live").Type)

	enter("live", "password_strength_config", `{"length":1}`)
	judge()
	watched = nil
	judge()
	require.Equal(t, TypePolicyEnded, newest("live").Type, "nobody watches it any more")
}

func TestPoliciesAreCounted(t *testing.T) {
	t.Parallel()
	trail := trailtest.New(t)
	_, err := trail.Append(t.Context(), audit.Entry{
		Type: "settings.baseline", Project: "shop", Environment: "live", Subject: "password_strength_config", Time: time.Now(), After: []byte(`{"length":"long"}`),
	})
	require.NoError(t, err)
	reg := prometheus.NewRegistry()
	p := policiesOf(t, PoliciesOptions{Trail: trail, Environments: []config.Environment{{Project: "shop", Environment: "live"}}, Registerer: reg})
	require.NoError(t, p.Judge(t.Context(), time.Now()))
	require.Contains(t, p.Status()[0].Violations[0].Fault, "cannot be evaluated", "what cannot be checked is not known to be kept")
	require.NoError(t, testutil.GatherAndCompare(reg, strings.NewReader(`
# HELP auditrelay_policies_violated Rules of policies that the settings violate at present, without those that are excepted.
# TYPE auditrelay_policies_violated gauge
auditrelay_policies_violated{environment="",project="shop",severity="critical"} 0
auditrelay_policies_violated{environment="",project="shop",severity="high"} 0
auditrelay_policies_violated{environment="",project="shop",severity="low"} 0
auditrelay_policies_violated{environment="",project="shop",severity="medium"} 0
auditrelay_policies_violated{environment="live",project="shop",severity="critical"} 0
auditrelay_policies_violated{environment="live",project="shop",severity="high"} 1
auditrelay_policies_violated{environment="live",project="shop",severity="low"} 0
auditrelay_policies_violated{environment="live",project="shop",severity="medium"} 0
`)))
}

func policiesOf(t *testing.T, o PoliciesOptions) *Policies {
	t.Helper()
	var err error
	o.Rules, err = CompileRules([]config.PolicyRule{
		{Name: "length", Setting: "password_strength_config", CEL: "state.length >= 12", Severity: "high", Reason: "short passwords are guessed"},
		{Name: "countries", Setting: "sms_country_codes", CEL: `state.all(c, c == "US")`, Severity: "low", Reason: "calls abroad cost money"},
	})
	require.NoError(t, err)
	o.Logger = slog.New(slog.DiscardHandler)
	return NewPolicies(o)
}
