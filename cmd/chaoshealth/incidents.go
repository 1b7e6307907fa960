package main

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/auditrelay/auditrelay/internal/testbed/rig"
	"github.com/auditrelay/auditrelay/internal/testbed/workspacesim"
)

// incidents lists those that are played, and further ones to fire the remaining alerts.
func incidents() []incident {
	return slices.Concat(streamIncidents(), arrivalIncidents(), rateIncidents(), apiIncidents(), answerIncidents(), formerIncidents(), sinkIncidents(), furtherIncidents(), strangerIncidents())
}

// streamIncidents are of the streaming config.
func streamIncidents() []incident {
	return []incident{
		{
			name: "secret changed by hand, same last four", expected: "refused, and healed", reported: healed, counts: true,
			cause: func(_ context.Context, s *stage) error {
				return s.person(workspacesim.StreamingEdit{SameLastFour: true})
			},
		},
		{
			name: "destination repointed", expected: "changed outside, and set back", reported: setBack,
			cause: func(_ context.Context, s *stage) error {
				return s.person(workspacesim.StreamingEdit{Hostname: "logs.elsewhere.example.com"})
			},
			alerts: []string{"StreamingChangedOutside"},
		},
		{
			name: "disabled", expected: "disabled", reported: state, counts: true, lasts: 10 * time.Second,
			setup:  setup{simulator: func(o *workspacesim.Options) { o.PutKeepsStatus = true }},
			cause:  func(_ context.Context, s *stage) error { return s.setStatus(workspacesim.StatusDisabled) },
			mend:   func(_ context.Context, s *stage) error { return s.setStatus(workspacesim.StatusActive) },
			alerts: []string{"EnvironmentDisabled"}, alertsAfter: []string{"EnvironmentGap"},
		},
		{
			name: "config deleted, and a PUT needs one", expected: "disabled", reported: state, counts: true, lasts: 10 * time.Second,
			setup: setup{
				simulator: func(o *workspacesim.Options) { o.PutNeedsConfig = true },
				before:    (*stage).createLoki,
			},
			cause: func(_ context.Context, s *stage) error { return s.workspace.DeleteStreaming(s.project, s.environment) },
			mend:  func(_ context.Context, s *stage) error { return s.createLoki() },
		},
		{
			name: "PUT refused: a config of the other type", expected: "misdirected", reported: state, lasts: 5 * time.Second,
			setup:  setup{simulator: func(o *workspacesim.Options) { o.PutNeedsSameType = true }},
			cause:  func(_ context.Context, s *stage) error { return s.replaceBy(s.createDatadog) },
			mend:   func(_ context.Context, s *stage) error { return s.replaceBy(s.createLoki) },
			alerts: []string{"EnvironmentMisdirected"},
		},
	}
}

// arrivalIncidents are of the arriving pushes, whatever the API declares.
func arrivalIncidents() []incident {
	return []incident{
		{
			name: "silence while ACTIVE", expected: "silent", reported: state, counts: true, lasts: 10 * time.Second,
			setup:  setup{before: busyWeeks},
			cause:  func(_ context.Context, s *stage) error { return s.stream(workspacesim.StreamFaults{Silent: true}) },
			mend:   func(_ context.Context, s *stage) error { return s.stream(workspacesim.StreamFaults{}) },
			alerts: []string{"EnvironmentSilent"},
		},
		{
			name: "a quiet night that is none", expected: "flowing", reported: state, never: true, lasts: 75 * time.Second,
			setup: setup{before: quietNights},
			cause: func(_ context.Context, s *stage) error { return s.stream(workspacesim.StreamFaults{Silent: true}) },
		},
		{
			name: "a late burst of six hours", expected: "late", reported: state,
			cause: func(_ context.Context, s *stage) error {
				return s.workspace.Burst(s.project, s.environment, 20_000, 6*time.Hour, 6*time.Hour)
			},
			alerts: []string{"EnvironmentLate"},
		},
		{
			name: "pushes after DISABLED", expected: "flowing, declared DISABLED", reported: declared,
			setup: setup{simulator: func(o *workspacesim.Options) { o.PutKeepsStatus = true }},
			cause: func(_ context.Context, s *stage) error {
				if err := s.stream(workspacesim.StreamFaults{PushInactive: true}); err != nil {
					return err
				}
				return s.setStatus(workspacesim.StatusDisabled)
			},
		},
		{
			name: "two relays fighting", expected: "fight", reported: fight, cause: startSecond, alerts: []string{"StreamingFight"},
		},
	}
}

func apiIncidents() []incident {
	healthy := func(_ context.Context, s *stage) error { return s.workspace.SetFaults(workspacesim.Faults{}) }
	failing := func(f workspacesim.Faults) func(context.Context, *stage) error {
		return func(_ context.Context, s *stage) error { return s.workspace.SetFaults(f) }
	}
	return []incident{
		{
			name: "API 500s", expected: "flowing, stale, API: outage", reported: stale, lasts: 3 * time.Second,
			cause: failing(workspacesim.Faults{ErrorRates: map[int]float64{500: 1}}), mend: healthy,
			alerts: []string{"WorkspaceUnreachable", "EnvironmentStale"},
		},
		{
			name: "API 429s", expected: "flowing, stale", reported: stale, lasts: 3 * time.Second,
			cause: failing(workspacesim.Faults{ErrorRates: map[int]float64{429: 1}, RetryAfter: time.Second}), mend: healthy,
			alerts: []string{"EnvironmentStale"},
		},
		{
			name: "key revoked", expected: "flowing, stale, API: unauthorized", reported: stale, lasts: 3 * time.Second,
			cause: failing(workspacesim.Faults{ErrorRates: map[int]float64{401: 1}}), mend: healthy,
			alerts: []string{"WorkspaceUnreachable"},
		},
	}
}

// state is the environment's.
func state(st *status) string { return st.one().State }

// healed tells of a gap with an end.
func healed(st *status) string {
	if gaps := st.one().Gaps; len(gaps) > 0 && st.arrives() {
		return gaps[len(gaps)-1].Cause + ", and healed"
	}
	return state(st)
}

// setBack describes a change by somebody else, followed by the relay's own.
func setBack(st *status) string {
	for i, c := range st.Changes { // the newest first
		if c.Cause == "outside" && i > 0 && st.Changes[i-1].Cause == "relay" && st.arrives() {
			return "changed outside, and set back"
		}
	}
	return state(st)
}

// declared adds a declared status other than ACTIVE, if the relay advises a person.
func declared(st *status) string {
	if e := st.one(); e.Declared.Status != workspacesim.StatusActive && e.Action != "" {
		return e.State + ", declared " + e.Declared.Status
	}
	return state(st)
}

// stale adds the age of the API's declaration, and the reason not to use it.
func stale(st *status) string {
	text := state(st)
	if st.one().Declared.Stale {
		text += ", stale"
	}
	if st.Workspace.Cause != "" {
		text += ", API: " + st.Workspace.Cause
	}
	return text
}

func fight(st *status) string {
	for _, s := range st.Streaming {
		if len(s.Fight) > 0 && string(s.Fight) != "null" {
			return "fight"
		}
	}
	return state(st)
}

// createLoki makes a config with the relay as its destination, and with an unknown secret.
func (s *stage) createLoki() error {
	return s.create("GRAFANA_LOKI", map[string]any{"grafana_loki": map[string]string{
		"hostname": s.relay.Ingest, "username": "by-hand", "password": "a-password-by-hand",
	}})
}

func (s *stage) createDatadog() error {
	return s.create("DATADOG", map[string]any{"datadog": map[string]string{"api_key": strings.Repeat("0a", 16), "site": "US"}})
}

func (s *stage) create(kind string, destination map[string]any) error {
	raw, err := json.Marshal(destination)
	if err != nil {
		return err
	}
	return s.workspace.CreateStreaming(s.project, s.environment, kind, raw)
}

func (s *stage) replaceBy(create func() error) error {
	if err := s.workspace.DeleteStreaming(s.project, s.environment); err != nil {
		return err
	}
	return create()
}

// startSecond starts a second relay for the same environment.
func startSecond(ctx context.Context, s *stage) (err error) {
	if s.second, err = rig.NewRelay(ctx, s.binary, s.dir+"/second"); err != nil {
		return err
	}
	return s.second.Start(ctx, s.config(s.second), patience, s.workspace.Env())
}
