package console

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/internal/ingest/credentials"
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
