package workspacesim

import (
	"encoding/json"
	"net/http"
	"time"

	"github.com/auditrelay/auditrelay/config/secret"
)

// of names the environment of a request.
type of struct {
	Project     string `json:"project_slug"`
	Environment string `json:"environment_slug"`
}

type createRequest struct {
	of
	Type        string          `json:"destination_type"`
	Destination json.RawMessage `json:"destination_config"`
}

type editRequest struct {
	of
	Hostname     string `json:"hostname"`
	Username     string `json:"username"`
	Site         string `json:"site"`
	Secret       string `json:"secret"`
	SameLastFour bool   `json:"same_last_four"`
}

type streamFaultsRequest struct {
	of
	Silent       bool     `json:"silent"`
	Hold         bool     `json:"hold"`
	PushInactive bool     `json:"push_inactive"`
	Secret       string   `json:"secret"`
	Lateness     duration `json:"lateness"`
	OneIn        uint64   `json:"one_in"`
}

type burstRequest struct {
	of
	Events int      `json:"events"`
	Age    duration `json:"age"`
	Span   duration `json:"span"`
}

// adminStreaming serves what a person does to streaming configs in the dashboard, and the
// faults of streams.
func (s *Simulator) adminStreaming(m *http.ServeMux) {
	m.HandleFunc("GET /_sim/streaming", show(s.StreamingConfigs))
	m.HandleFunc("POST /_sim/streaming_status", act(func(r adminRequest) (any, error) {
		return done, s.SetStreamingStatus(r.Project, r.Environment, r.Status)
	}))
	m.HandleFunc("POST /_sim/streaming_create", act(func(r createRequest) (any, error) {
		return done, s.CreateStreaming(r.Project, r.Environment, r.Type, r.Destination)
	}))
	m.HandleFunc("POST /_sim/streaming_edit", act(func(r editRequest) (any, error) {
		return done, s.EditStreaming(r.Project, r.Environment, StreamingEdit{
			Hostname: r.Hostname, Username: r.Username, Site: r.Site, Secret: secret.New(r.Secret), SameLastFour: r.SameLastFour,
		})
	}))
	m.HandleFunc("POST /_sim/streaming_delete", act(func(r of) (any, error) {
		return done, s.DeleteStreaming(r.Project, r.Environment)
	}))
	m.HandleFunc("POST /_sim/stream_faults", act(func(r streamFaultsRequest) (any, error) {
		return done, s.SetStreamFaults(r.Project, r.Environment, StreamFaults{
			Silent: r.Silent, Hold: r.Hold, PushInactive: r.PushInactive, Secret: secret.New(r.Secret), Lateness: time.Duration(r.Lateness), OneIn: r.OneIn,
		})
	}))
	m.HandleFunc("POST /_sim/burst", act(func(r burstRequest) (any, error) {
		return done, s.Burst(r.Project, r.Environment, r.Events, time.Duration(r.Age), time.Duration(r.Span))
	}))
}
