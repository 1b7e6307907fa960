package console

import (
	"errors"
	"net/http"
	"time"

	"github.com/auditrelay/auditrelay/internal/credentials"
	"github.com/auditrelay/auditrelay/internal/silences"
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

func (s *Server) listSilences(w http.ResponseWriter, r *http.Request) {
	if err := s.opts.Silences.Load(r.Context()); err != nil {
		s.fail(w, err)
		return
	}
	writeJSON(w, http.StatusOK, s.opts.Silences.List())
}

func (s *Server) addSilence(w http.ResponseWriter, r *http.Request) {
	var req AddSilence
	err := readJSON(w, r, &req)
	if err == nil && (req.For < 0 || req.For > int64(silences.Longest/time.Second)+1) {
		req.For = int64(silences.Longest/time.Second) + 1 // is refused, and overflows nothing
	}
	var done silences.Silence
	if err == nil {
		of := silences.All
		if req.Project != "" {
			of = credentials.Environment{Project: req.Project, Environment: req.Environment}
		}
		until := time.Now().Add(time.Duration(req.For) * time.Second)
		done, err = s.opts.Silences.Add(r.Context(), of, silences.Silence{Until: until, Reason: req.Reason, Person: personOf(r.Context())})
	}
	if err != nil {
		s.fail(w, silenceRefusal(err))
		return
	}
	s.opts.Logger.Warn("a silence is added on request", "silence", done.ID, "project", done.Project, "environment", done.Environment,
		"until", done.Until, "reason", done.Reason, "person", done.Person.String())
	writeJSON(w, http.StatusOK, done)
}

func (s *Server) endSilence(w http.ResponseWriter, r *http.Request) {
	var req EndSilence
	err := readJSON(w, r, &req)
	var done silences.Silence
	if err == nil {
		done, err = s.opts.Silences.End(r.Context(), req.ID, personOf(r.Context()))
	}
	if err != nil {
		s.fail(w, silenceRefusal(err))
		return
	}
	s.opts.Logger.Warn("a silence is ended on request", "silence", done.ID, "project", done.Project, "environment", done.Environment, "person", personOf(r.Context()).String())
	writeJSON(w, http.StatusOK, done)
}

func silenceRefusal(err error) error {
	switch {
	case errors.Is(err, silences.ErrUnknown):
		return refuse(http.StatusNotFound, "%v; 'auditrelay silence list' shows the active ones", err)
	case errors.Is(err, silences.ErrInvalid):
		return refuse(http.StatusBadRequest, "%v", err)
	}
	return err
}
