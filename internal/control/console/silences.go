package console

import (
	"context"
	"time"

	"github.com/auditrelay/auditrelay/internal/health"
	"github.com/auditrelay/auditrelay/internal/ingest/credentials"
)

// AddSilence asks for a silence of an environment from now on; of all where Project is
// empty. The relay's clock counts.
type AddSilence struct {
	Project     string `json:"project,omitempty"`
	Environment string `json:"environment,omitempty"`
	// For is its length in seconds.
	For    int64  `json:"for_seconds"`
	Reason string `json:"reason"`
}

// EndSilence asks to end a silence.
type EndSilence struct {
	ID string `json:"id"`
}

func (s *Server) listSilences(ctx context.Context, _ none) ([]health.Silence, error) {
	if err := s.opts.Silences.Load(ctx); err != nil {
		return nil, err
	}
	return s.opts.Silences.List(), nil
}

func (s *Server) addSilence(ctx context.Context, req AddSilence) (health.Silence, error) {
	if req.For < 0 || req.For > int64(health.LongestSilence/time.Second)+1 {
		req.For = int64(health.LongestSilence/time.Second) + 1 // is refused, and overflows nothing
	}
	of := health.AllEnvironments
	if req.Project != "" {
		of = credentials.Environment{Project: req.Project, Environment: req.Environment}
	}
	until := time.Now().Add(time.Duration(req.For) * time.Second)
	done, err := s.opts.Silences.Add(ctx, of, health.Silence{Until: until, Reason: req.Reason, Person: personOf(ctx)})
	if err == nil {
		s.opts.Logger.Warn("a silence is added on request", "silence", done.ID, "project", done.Project, "environment", done.Environment,
			"until", done.Until, "reason", done.Reason, "person", done.Person.String())
	}
	return done, err
}

func (s *Server) endSilence(ctx context.Context, req EndSilence) (health.Silence, error) {
	done, err := s.opts.Silences.End(ctx, req.ID, personOf(ctx))
	if err == nil {
		s.opts.Logger.Warn("a silence is ended on request", "silence", done.ID, "project", done.Project, "environment", done.Environment, "person", personOf(ctx).String())
	}
	return done, err
}
