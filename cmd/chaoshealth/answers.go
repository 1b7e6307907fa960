package main

import (
	"context"
	"errors"
	"time"

	"github.com/auditrelay/auditrelay/internal/testbed/workspacesim"
)

// lastsOutage is how long the API is away before a person's edit. A relay that waits for as
// long again sees nothing for more than a minute after that.
const lastsOutage = 75 * time.Second

// boundedLoss is the most that may be lost by an edit after the outage: the relay notices it
// within half a minute.
const boundedLoss = 30 * rate

// answerIncidents are about an API that answers again, or asks the relay to wait.
func answerIncidents() []incident {
	return []incident{
		{
			name: "an API that answers again", expected: "refused, and healed", reported: healed, counts: true, most: boundedLoss,
			cause: func(ctx context.Context, s *stage) error {
				outage := workspacesim.Faults{ErrorRates: map[int]float64{500: 1}}
				if err := errors.Join(s.workspace.SetFaults(outage), hold(ctx, lastsOutage), s.workspace.SetFaults(workspacesim.Faults{})); err != nil {
					return err
				}
				return s.person(workspacesim.StreamingEdit{SameLastFour: true})
			},
		},
		{
			name: "429 with Retry-After: 3600", expected: "flowing, stale, API: throttled", reported: stale, lasts: 20 * time.Second,
			cause: func(_ context.Context, s *stage) error {
				return s.workspace.SetFaults(workspacesim.Faults{ErrorRates: map[int]float64{429: 1}, RetryAfter: time.Hour})
			},
			alerts: []string{"WorkspaceUnreachable", "EnvironmentStale"},
		},
	}
}
