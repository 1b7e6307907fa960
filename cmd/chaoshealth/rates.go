package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/auditrelay/auditrelay/internal/testbed/workspacesim"
)

// rateIncidents are of pushes that arrive, but too few or with wrong times, and of two
// incidents within a minute.
func rateIncidents() []incident {
	flows := func(_ context.Context, s *stage) error { return s.stream(workspacesim.StreamFaults{}) }
	return []incident{
		{
			name: "a trickle: one event in 1,000", expected: "reduced", reported: state, counts: true, lasts: 30 * time.Second, causes: []string{"reduced"},
			setup: setup{before: busyWeeks},
			cause: func(_ context.Context, s *stage) error { return s.stream(workspacesim.StreamFaults{OneIn: 1000}) },
			mend:  flows, alerts: []string{"EnvironmentReduced"}, alertsAfter: []string{"EnvironmentGap"},
		},
		{
			name: "a clock 30 minutes slow, and a restart", expected: "skewed, 0 lost", reported: lost,
			cause: func(ctx context.Context, s *stage) error {
				if err := s.stream(workspacesim.StreamFaults{Lateness: 30 * time.Minute}); err != nil {
					return err
				}
				is := func(st *status) bool { return state(st) == "skewed" }
				if err := s.until(ctx, "the clock is seen", is); err != nil {
					return err
				}
				return errors.Join(s.away(ctx, 20*time.Second), hold(ctx, settled+10*time.Second))
			},
			mend: flows, alerts: []string{"EnvironmentSkewed"},
		},
		{
			name: "a clock two hours ahead", expected: "skewed, 0 lost", reported: lost,
			cause: func(_ context.Context, s *stage) error {
				return s.stream(workspacesim.StreamFaults{Lateness: -2 * time.Hour})
			},
			mend: flows,
		},
		{
			name: "two incidents within a minute", expected: "disabled", reported: state, counts: true, lasts: 15 * time.Second, causes: []string{"silent", "disabled"},
			setup: setup{before: busyWeeks, simulator: func(o *workspacesim.Options) { o.PutKeepsStatus = true }},
			cause: func(ctx context.Context, s *stage) error {
				if err := s.silence(ctx); err != nil {
					return err
				}
				return errors.Join(hold(ctx, 15*time.Second), s.setStatus(workspacesim.StatusDisabled))
			},
			mend: func(_ context.Context, s *stage) error { return s.setStatus(workspacesim.StatusActive) },
		},
		{
			name: "a downtime, then a silence", expected: "flowing", reported: once("silent"), counts: true, causes: []string{"silent"},
			setup: setup{before: busyWeeks},
			cause: func(ctx context.Context, s *stage) error {
				// What was refused in the downtime is pushed again within a second, and costs nothing.
				return errors.Join(s.away(ctx, 20*time.Second), hold(ctx, 10*time.Second), s.silence(ctx))
			},
		},
	}
}

// lost adds the sum of all losses told of.
func lost(st *status) string {
	sum := 0.0
	for _, g := range st.one().Gaps {
		sum += g.EventsLost
	}
	return fmt.Sprintf("%s, %.0f lost", state(st), sum)
}

// once takes a flowing environment with a gap of a cause for one that flows.
func once(cause string) func(*status) string {
	return func(st *status) string {
		if gaps := st.one().Gaps; st.arrives() && len(gaps) > 0 && gaps[len(gaps)-1].Cause == cause {
			return "flowing"
		}
		return state(st) + " without a gap"
	}
}

// silence lets the stream fall silent until it is reported, and flow again.
func (s *stage) silence(ctx context.Context) error {
	if err := s.stream(workspacesim.StreamFaults{Silent: true}); err != nil {
		return err
	}
	if err := s.until(ctx, "the silence is seen", func(st *status) bool { return state(st) == "silent" }); err != nil {
		return err
	}
	if err := s.stream(workspacesim.StreamFaults{}); err != nil {
		return err
	}
	return s.until(ctx, "the event log flows again", (*status).arrives)
}

// away kills the relay, and starts it again after a while.
func (s *stage) away(ctx context.Context, after time.Duration) error {
	s.relay.Close()
	if err := hold(ctx, after); err != nil {
		return err
	}
	return s.start(ctx)
}
