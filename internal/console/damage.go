package console

import (
	"errors"
	"net/http"

	"github.com/auditrelay/auditrelay/internal/quarantine"
)

func (s *Server) showDamage(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, http.StatusOK, s.opts.Quarantine.Damage())
}

func (s *Server) acceptDamage(w http.ResponseWriter, r *http.Request) {
	was, err := s.accept(r)
	if err != nil {
		s.fail(w, err)
		return
	}
	s.opts.Logger.Warn("damage of the journal is accepted; sinks pass over it",
		"damaged", was.Records, "first_position", was.First)
	writeJSON(w, http.StatusOK, was)
}

// accept lets sinks pass over the damage. A crash between the two steps leaves an entry
// of the intent; the command, given again, makes another.
func (s *Server) accept(r *http.Request) (quarantine.Damage, error) {
	if was := s.opts.Quarantine.Damage(); was.Records > 0 {
		if err := s.record(r.Context(), Loss{Type: "journal.damage_accepted", Detail: was}); err != nil {
			return was, err
		}
	}
	was, err := s.opts.Quarantine.Accept(r.Context())
	if errors.Is(err, quarantine.ErrNoDamage) {
		err = refuse(http.StatusConflict, "%v", err)
	}
	return was, err
}
