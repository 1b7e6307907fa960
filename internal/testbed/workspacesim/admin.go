package workspacesim

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"
)

// Admin serves the simulator's own address, in the part of a dashboard, an outage or a
// test. It asks for no credentials: keep it private.
//
//	GET  /_sim/environments      the environments, and what can be deleted from them
//	GET  /_sim/counts            the counts of all environments together
//	GET  /_sim/ledgers           what became of each event, by environment
//	GET  /_sim/changes           the changes made so far
//	POST /_sim/changes           change a setting: {} or {"project_slug", "environment_slug", "resource"}
//	GET  /_sim/faults            the current faults
//	POST /_sim/faults            replace them: [Faults], its durations as "250ms"
//	POST /_sim/rate              {"rate"}, of one environment with {"project_slug", "environment_slug"}
//	POST /_sim/rate_limit        {"rate"}
//	POST /_sim/pause             stop generating events
//	POST /_sim/resume            go on
//
// Of the second API, for migrations:
//
//	GET  /_sim/migrated          what it has taken, and how many requests came in any second
//	POST /_sim/passwords         {"shared"}: whether passwords are shared, or scoped to each member
//
// A person's acts on one environment's streaming config; the modes and faults of the API do
// not count for them:
//
//	GET  /_sim/streaming         the streaming configs of all environments
//	POST /_sim/streaming_create  {"destination_type", "destination_config"}
//	POST /_sim/streaming_edit    {"hostname", "username", "site", "secret", "same_last_four"}; what is left out stays
//	POST /_sim/streaming_delete  {}
//	POST /_sim/streaming_status  {"status"}
//
// The faults of one environment's stream, whatever the API declares:
//
//	POST /_sim/stream_faults     replace them: [StreamFaults], {} for none
//	POST /_sim/burst             {"events", "age", "span"}: late events, at once
//
// Both kinds take "project_slug" and "environment_slug" as well. A revoked management key
// is the fault {"error_rates": {"401": 1}}.
func (s *Simulator) Admin() http.Handler {
	m := http.NewServeMux()
	m.HandleFunc("GET /_sim/environments", show(s.Environments))
	m.HandleFunc("GET /_sim/counts", show(s.Counts))
	m.HandleFunc("GET /_sim/ledgers", show(s.Ledgers))
	m.HandleFunc("GET /_sim/changes", show(s.Changes))
	m.HandleFunc("GET /_sim/faults", show(func() faultsJSON { return faultsOf(s.Faults()) }))
	m.HandleFunc("POST /_sim/changes", act(s.adminChange))
	m.HandleFunc("POST /_sim/faults", act(func(f faultsJSON) (any, error) { return done, s.SetFaults(f.faults()) }))
	m.HandleFunc("POST /_sim/rate", act(func(r adminRequest) (any, error) {
		return done, s.SetRate(r.Project, r.Environment, r.Rate)
	}))
	m.HandleFunc("POST /_sim/rate_limit", act(func(r adminRequest) (any, error) {
		s.SetRateLimit(r.Rate)
		return done, nil
	}))
	m.HandleFunc("GET /_sim/migrated", show(s.Migrated))
	m.HandleFunc("POST /_sim/passwords", act(func(r passwordsRequest) (any, error) { return done, s.SharePasswords(r.Shared) }))
	s.adminStreaming(m)
	m.HandleFunc("POST /_sim/pause", act(func(struct{}) (any, error) { s.Pause(); return s.Counts(), nil }))
	m.HandleFunc("POST /_sim/resume", act(func(struct{}) (any, error) { s.Resume(); return s.Counts(), nil }))
	return m
}

// adminRequest is the body of most POSTs. Each takes the fields it needs.
type adminRequest struct {
	Project     string  `json:"project_slug"`
	Environment string  `json:"environment_slug"`
	Resource    string  `json:"resource"`
	Status      string  `json:"status"`
	Rate        float64 `json:"rate"`
}

type passwordsRequest struct {
	Shared bool `json:"shared"`
}

func (s *Simulator) adminChange(r adminRequest) (any, error) {
	if r == (adminRequest{}) {
		return s.ChangeSomething()
	}
	return s.ChangeSetting(r.Project, r.Environment, r.Resource)
}

// done is the answer of a POST without a result.
var done = struct {
	Done bool `json:"done"`
}{true}

func show[T any](get func() T) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { encode(http.StatusOK, get()).write(w, false) }
}

// act serves a POST; an empty body is the zero value.
func act[T any](do func(T) (any, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var in T
		d := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxBody))
		d.DisallowUnknownFields()
		if err := d.Decode(&in); err != nil && !errors.Is(err, io.EOF) {
			encode(http.StatusBadRequest, map[string]string{"error": err.Error()}).write(w, false)
			return
		}
		out, err := do(in)
		if err != nil {
			encode(http.StatusBadRequest, map[string]string{"error": err.Error()}).write(w, false)
			return
		}
		encode(http.StatusOK, out).write(w, false)
	}
}

// faultsJSON is [Faults] with durations as people write them.
type faultsJSON struct {
	Outage        bool            `json:"outage"`
	ErrorRates    map[int]float64 `json:"error_rates"`
	RetryAfter    duration        `json:"retry_after"`
	Latency       duration        `json:"latency"`
	LatencyJitter duration        `json:"latency_jitter"`
	CutRate       float64         `json:"cut_rate"`
	PathContains  string          `json:"path_contains"`
}

func (f faultsJSON) faults() Faults {
	return Faults{
		Outage: f.Outage, ErrorRates: f.ErrorRates, RetryAfter: time.Duration(f.RetryAfter),
		Latency: time.Duration(f.Latency), LatencyJitter: time.Duration(f.LatencyJitter),
		CutRate: f.CutRate, PathContains: f.PathContains,
	}
}

func faultsOf(f Faults) faultsJSON {
	return faultsJSON{
		Outage: f.Outage, ErrorRates: f.ErrorRates, RetryAfter: duration(f.RetryAfter),
		Latency: duration(f.Latency), LatencyJitter: duration(f.LatencyJitter),
		CutRate: f.CutRate, PathContains: f.PathContains,
	}
}

type duration time.Duration

func (d duration) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

func (d *duration) UnmarshalText(b []byte) error {
	v, err := time.ParseDuration(string(b))
	if err != nil {
		return fmt.Errorf("parse duration %q: %w", b, err)
	}
	*d = duration(v)
	return nil
}
