package main

import (
	"context"
	"fmt"

	"github.com/auditrelay/auditrelay/internal/testbed/realservers"
)

// datadogKey is the intake's key.
const datadogKey = "0123456789abcdef0123456789abcdef"

func startDatadog(context.Context, *session) (*place, error) {
	intake, err := realservers.StartDatadogIntake(realservers.DatadogOptions{APIKey: datadogKey})
	if err != nil {
		return nil, err
	}
	return &place{
		targets: []target{{
			name: "datadog (a fake)", sink: "datadog",
			section: fmt.Sprintf("datadog: {api_key: %s, url: %q}", datadogKey, intake.URL),
			read: func(_ context.Context, add func(id string)) error {
				addCounted(intake.IDs(), add)
				return nil
			},
			faults: intake.Violations,
		}},
		outage: gone("the intake", intake.Down, intake.Up),
		close:  intake.Close,
	}, nil
}

// gone is the outage of a server in this process.
func gone(what string, down, up func()) *outage {
	return &outage{
		kill: func(context.Context) (string, error) { down(); return what, nil },
		heal: func(context.Context) error { up(); return nil },
	}
}
