package console

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/internal/health"
	"github.com/auditrelay/auditrelay/internal/ingest/credentials"
	"github.com/auditrelay/auditrelay/internal/migration"
	"github.com/auditrelay/auditrelay/internal/workspace/streaming"
)

// OfEnvironment names an environment, and may name one of its generated credentials, and
// why a person asks.
type OfEnvironment struct {
	Project     string `json:"project"`
	Environment string `json:"environment"`
	LastFour    string `json:"last_four,omitempty"`
	Reason      string `json:"reason,omitempty"` // for the trail
}

func (o OfEnvironment) environment() credentials.Environment {
	return credentials.Environment{Project: o.Project, Environment: o.Environment}
}

func (o OfEnvironment) String() string { return o.Project + "/" + o.Environment }

// Revoked tells the fate of a credential, and of its successor.
type Revoked struct {
	Was credentials.Listed `json:"was"`
	// Rotated: a new credential was set, as the current one was revoked.
	Rotated bool `json:"rotated"`
	// NotRotated is the reason for not setting one, when one was due.
	NotRotated string `json:"not_rotated,omitempty"`
}

// revocation is the Detail of the entry before it.
type revocation struct {
	credentials.Listed
	Why string `json:"why,omitempty"` // in the person's words
}

func (s *Server) rotateCredential(ctx context.Context, which OfEnvironment) ([]credentials.Listed, error) {
	if err := s.rotate(ctx, which); err != nil {
		return nil, err
	}
	s.opts.Logger.Warn("credential is rotated on request", "project", which.Project, "environment", which.Environment)
	return s.opts.Credentials.List(), nil
}

// rotate replaces an environment's generated credential; its error says why not.
func (s *Server) rotate(ctx context.Context, which OfEnvironment) error {
	r, err := s.reconciler()
	if err != nil {
		return err
	}
	return explained(r.Rotate(ctx, which.environment(), personOf(ctx), which.Reason))
}

// revoke ceases to accept a generated credential, and has the current one replaced.
func (s *Server) revoke(ctx context.Context, which OfEnvironment) (done Revoked, err error) {
	list := s.opts.Credentials.List()
	i := slices.IndexFunc(list, func(c credentials.Listed) bool {
		return c.Project == which.Project && c.Environment == which.Environment && c.LastFour == which.LastFour && c.Kind == credentials.KindGenerated
	})
	if i < 0 || which.LastFour == "" {
		return done, refuse(http.StatusNotFound, "%s has no generated credential ending in %q; 'auditrelay credentials list' shows its credentials", which.environment(), which.LastFour)
	}
	done.Was = list[i]
	// A crash between the two leaves an entry of the intent; the command, given again,
	// makes another. After Revoke the next look at the streaming config sets a new
	// credential, if the rotation does not come to it.
	loss := Loss{Type: "credential.revoked", Project: which.Project, Environment: which.Environment, Subject: "push_credential", Detail: revocation{done.Was, which.Reason}}
	if err := s.record(ctx, loss); err != nil {
		return done, err
	}
	err = s.opts.Credentials.Revoke(ctx, which.environment(), which.LastFour)
	if err != nil && !errors.Is(err, credentials.ErrUnknown) { // somebody else was as quick
		return done, err
	}
	if done.Was.State != credentials.StateReplaced {
		err := s.rotate(ctx, which)
		if done.Rotated = err == nil; err != nil {
			done.NotRotated = err.Error() + s.afterwards(which.environment())
		}
	}
	s.opts.Logger.Warn("credential is revoked on request", "project", which.Project, "environment", which.Environment,
		"last_four", which.LastFour, "rotated", done.Rotated, "not_rotated", done.NotRotated)
	return done, nil
}

// afterwards says whether the relay itself replaces a credential later.
func (s *Server) afterwards(env credentials.Environment) string {
	r, err := s.reconciler()
	if err != nil {
		return ""
	}
	for _, h := range r.Health() {
		if h.Project == env.Project && h.Environment == env.Environment && !h.Observed && h.Mode == config.ModeEnforce {
			return "; the relay tries again at its next look"
		}
	}
	return fmt.Sprintf("; the relay sets none by itself there: pushes of %s with the revoked one are refused", env)
}

// Planned is the plan of an environment's streaming config, or the reason for none.
type Planned struct {
	Project     string             `json:"project"`
	Environment string             `json:"environment"`
	Preview     *streaming.Preview `json:"preview"`
	Error       string             `json:"error,omitempty"`
}

// plansAtOnce bounds the environments compared together; the API's client bounds its requests.
const plansAtOnce = 8

// listStreaming lists the environment of the request, or without one all of them.
func (s *Server) listStreaming(_ context.Context, which OfEnvironment) ([]streaming.Health, error) {
	r, err := s.reconciler()
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(r.Health(), func(h streaming.Health) bool {
		return which.Project != "" && (h.Project != which.Project || h.Environment != which.Environment)
	}), nil
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
	for group := range slices.Chunk(all, plansAtOnce) {
		done := make([]Planned, len(group))
		var working sync.WaitGroup
		for i, of := range group {
			working.Go(func() { done[i] = plan(ctx, r, of) })
		}
		working.Wait()
		for i := range done {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if err := yield(done[i]); err != nil {
				return err
			}
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

// EnterMigration asks to enter the start or the end of a run into the trail.
type EnterMigration struct {
	OfEnvironment
	Note migration.Note `json:"note"`
}

// enterMigration makes an entry of its own. A crash before it leaves nothing, and the run does not
// begin; asked again, it stands there twice, and means the same as once.
func (s *Server) enterMigration(ctx context.Context, req EnterMigration) (none, error) {
	kind := "migration.started"
	if req.Note.Result != nil {
		kind = "migration.ended"
	}
	return none{}, s.record(ctx, Loss{Type: kind, Project: req.Project, Environment: req.Environment, Subject: migration.Subject, Detail: req.Note})
}
