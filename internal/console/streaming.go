package console

import (
	"context"
	"errors"
	"net/http"
	"sync"

	"github.com/auditrelay/auditrelay/internal/streaming"
)

// Planned is the plan of an environment's streaming config, or the reason for none.
type Planned struct {
	Project     string             `json:"project"`
	Environment string             `json:"environment"`
	Preview     *streaming.Preview `json:"preview"`
	Error       string             `json:"error,omitempty"`
}

// plansAtOnce bounds the environments compared together; the API's client bounds its requests.
const plansAtOnce = 8

func (s *Server) listStreaming(w http.ResponseWriter, _ *http.Request) {
	r, err := s.reconciler()
	if err != nil {
		s.fail(w, err)
		return
	}
	writeJSON(w, http.StatusOK, r.Health())
}

// planStreaming compares the environment of the request, or without one all those with a
// desired config.
func (s *Server) planStreaming(w http.ResponseWriter, req *http.Request) {
	var which OfEnvironment
	err := readJSON(w, req, &which)
	var r *streaming.Reconciler
	if err == nil {
		r, err = s.reconciler()
	}
	if err != nil {
		s.fail(w, err)
		return
	}
	all := []OfEnvironment{which}
	if which.Project == "" {
		all = nil
		for _, h := range r.Health() {
			if !h.Observed {
				all = append(all, OfEnvironment{Project: h.Project, Environment: h.Environment})
			}
		}
	}
	out := newStream(w)
	out.end(req.Context(), nil, planAll(req.Context(), r, all, func(p Planned) error { return out.send(frame{Planned: &p}) }))
}

// planAll yields the plans in the order of all.
func planAll(ctx context.Context, r *streaming.Reconciler, all []OfEnvironment, yield func(Planned) error) error {
	ctx, cancel := context.WithCancel(ctx)
	var working sync.WaitGroup
	defer working.Wait()
	defer cancel()
	done := make([]chan Planned, len(all))
	for i := range all {
		done[i] = make(chan Planned, 1)
	}
	turns := make(chan struct{}, plansAtOnce)
	working.Go(func() {
		for i, of := range all {
			turns <- struct{}{}
			working.Go(func() {
				defer func() { <-turns }()
				done[i] <- plan(ctx, r, of)
			})
		}
	})
	for i := range all {
		p := <-done[i]
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err := yield(p); err != nil {
			return err
		}
	}
	return nil
}

func plan(ctx context.Context, r *streaming.Reconciler, of OfEnvironment) Planned {
	p := Planned{Project: of.Project, Environment: of.Environment}
	preview, err := r.Plan(ctx, of.environment())
	if err != nil {
		p.Error = streamingRefusal(err).Error()
		return p
	}
	p.Preview = &preview
	return p
}

func (s *Server) applyStreaming(w http.ResponseWriter, req *http.Request) {
	var which OfEnvironment
	err := readJSON(w, req, &which)
	var r *streaming.Reconciler
	if err == nil {
		r, err = s.reconciler()
	}
	var done streaming.Preview
	if err == nil {
		done, err = r.Apply(req.Context(), which.environment(), personOf(req.Context()), which.Reason)
	}
	if err != nil {
		s.fail(w, streamingRefusal(err))
		return
	}
	s.opts.Logger.Warn("streaming config is set on request", "project", which.Project, "environment", which.Environment)
	writeJSON(w, http.StatusOK, done)
}

// reconciler is the running one; its absence is no fault of the relay.
func (s *Server) reconciler() (*streaming.Reconciler, error) {
	r, err := s.opts.Streaming()
	if err != nil {
		return nil, refuse(http.StatusServiceUnavailable, "%v", err)
	}
	return r, nil
}

// streamingRefusal tells a person the way to the wanted config.
func streamingRefusal(err error) error {
	switch {
	case errors.Is(err, streaming.ErrDryRun):
		return refuse(http.StatusConflict, "streaming.dry_run is set, so nothing is changed in the workspace; remove it, and restart the relay")
	case errors.Is(err, streaming.ErrElsewhere):
		return refuse(http.StatusConflict, "%v; 'auditrelay streaming apply' points it at the relay", err)
	case errors.Is(err, streaming.ErrNotGenerated):
		return refuse(http.StatusNotFound, "%v: it has no stream.relay in the configuration, so the relay has set no credential there", err)
	case errors.Is(err, streaming.ErrNotDesired):
		return refuse(http.StatusNotFound, "%v; add its stream there, and restart the relay", err)
	}
	return err
}
