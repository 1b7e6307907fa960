package main

import (
	"context"
	"fmt"
	"strings"
	"time"
)

// formerIncidents are about an environment that is taken out of the configuration, while the
// workspace goes on streaming its event log to the relay.
func formerIncidents() []incident {
	return []incident{{
		name: "an environment taken out", expected: "named, as it streams here", reported: former, lasts: 5 * time.Second,
		cause: func(ctx context.Context, s *stage) error {
			return s.restart(ctx, strings.Replace(s.config(s.relay), environmentLine(s, 0), environmentLine(s, 1), 1))
		},
		mend: func(ctx context.Context, s *stage) error {
			both := environmentLine(s, 0) + "\n" + environmentLine(s, 1)
			return s.restart(ctx, strings.Replace(s.config(s.relay), environmentLine(s, 0), both, 1))
		},
		alerts: []string{"EnvironmentNotConfigured"},
	}}
}

// former tells of an environment that still pushes and points here, with the step that
// mends it.
func former(st *status) string {
	for _, f := range st.NotConfigured {
		if f.Losing && f.PointsHere && f.RefusedPushes > 0 && strings.Contains(f.Action, f.Environment) {
			return "named, as it streams here"
		}
	}
	return state(st)
}

// environmentLine is the line of an environment in the stage's configuration.
func environmentLine(s *stage, n int) string {
	e := s.workspace.Environments()[n]
	return fmt.Sprintf("  - {project: %s, environment: %s, stream: {relay: {hostname: %q}}}", e.Project, e.Environment, s.relay.Ingest)
}

// restart stops the relay, and starts it with another configuration.
func (s *stage) restart(ctx context.Context, config string) error {
	if err := s.relay.Process().Stop(time.Minute); err != nil {
		return err
	}
	return s.relay.Start(ctx, config, patience, s.workspace.Env())
}
