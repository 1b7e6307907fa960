package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// status is a part of /status.
type status struct {
	Ready struct {
		Ready bool `json:"ready"`
	} `json:"ready"`
	Environments []environment `json:"environments"`
	Sinks        []sink        `json:"sinks"`
	// NotConfigured are those taken out of the configuration.
	NotConfigured []struct {
		Environment   string `json:"environment"`
		PointsHere    bool   `json:"points_here"`
		RefusedPushes int64  `json:"refused_pushes"`
		Losing        bool   `json:"losing"`
		Action        string `json:"action"`
	} `json:"not_configured"`
	Workspace struct {
		Cause string `json:"cause"`
	} `json:"workspace"`
	Changes []struct {
		Cause string `json:"cause"`
	} `json:"changes"` // the newest first
	Streaming []struct {
		Finding string          `json:"finding"`
		Fight   json.RawMessage `json:"fight"`
	} `json:"streaming"`
}

type environment struct {
	State    string    `json:"state"`
	Reason   string    `json:"reason"`
	Action   string    `json:"action"`
	Since    time.Time `json:"since"`
	Declared struct {
		Stale     bool   `json:"stale"`
		Status    string `json:"status"`
		LastError string `json:"last_error"`
	} `json:"declared"`
	Observed struct {
		LastPush time.Time `json:"last_push"`
	} `json:"observed"`
	Gap  *gap  `json:"gap"`
	Gaps []gap `json:"gaps"`
}

type gap struct {
	Cause           string  `json:"cause"`
	EventsExpected  float64 `json:"events_expected"`
	EventsLost      float64 `json:"events_lost"`
	EventsLostLeast float64 `json:"events_lost_least"`
	EventsLostMost  float64 `json:"events_lost_most"`
}

type sink struct {
	Name         string    `json:"name"`
	FailingSince time.Time `json:"failing_since"`
	LastError    string    `json:"last_error"`
	DeadLetters  int       `json:"dead_letters"`
}

// status reads /status. The relay may be away, as at a kill.
func (s *stage) status(ctx context.Context) (status, error) {
	var st status
	_, text, err := s.relay.Ask(ctx, "/status")
	if err != nil {
		return st, err
	}
	if err := json.Unmarshal([]byte(text), &st); err != nil {
		return st, fmt.Errorf("read /status: %w", err)
	}
	if len(st.Environments) == 0 {
		return st, errors.New("/status shows no environment")
	}
	return st, nil
}

// one is the environment of the stage, the first one.
func (s *status) one() *environment { return &s.Environments[0] }

// sink is a sink by its name; a zero one if there is none.
func (s *status) sink(name string) sink {
	for _, k := range s.Sinks {
		if k.Name == name {
			return k
		}
	}
	return sink{}
}

// arrives reports whether the environment's events arrive, with or without a gap before.
func (s *status) arrives() bool {
	state := s.one().State
	return state == "flowing" || state == "gapped"
}
