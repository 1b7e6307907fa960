package console

import (
	"context"
	"net/http"
	"sync"

	"github.com/auditrelay/auditrelay/internal/workspace/streaming"
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

func (s *Server) listStreaming(context.Context, none) ([]streaming.Health, error) {
	r, err := s.reconciler()
	if err != nil {
		return nil, err
	}
	return r.Health(), nil
}

// planStreaming compares the environment of the request, or without one all those with a
// desired config.
func (s *Server) planStreaming(ctx context.Context, which OfEnvironment, out *stream) error {
	r, err := s.reconciler()
	if err != nil {
		return err
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
	return planAll(ctx, r, all, func(p Planned) error { return out.send(p) })
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
		p.Error = explained(err).Error()
		return p
	}
	p.Preview = &preview
	return p
}

func (s *Server) applyStreaming(ctx context.Context, which OfEnvironment) (done streaming.Preview, err error) {
	r, err := s.reconciler()
	if err != nil {
		return done, err
	}
	if done, err = r.Apply(ctx, which.environment(), personOf(ctx), which.Reason); err == nil {
		s.opts.Logger.Warn("streaming config is set on request", "project", which.Project, "environment", which.Environment)
	}
	return done, err
}

// reconciler is the running one; its absence is no fault of the relay.
func (s *Server) reconciler() (*streaming.Reconciler, error) {
	r, err := s.opts.Streaming()
	if err != nil {
		return nil, refuse(http.StatusServiceUnavailable, "%v", err)
	}
	return r, nil
}
