package console

import (
	"errors"
	"net/http"

	"github.com/auditrelay/auditrelay/internal/losses"
)

func (s *Server) showDamage(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, http.StatusOK, s.opts.Journal.Losses.Damage())
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
func (s *Server) accept(r *http.Request) (losses.Damage, error) {
	if was := s.opts.Journal.Losses.Damage(); was.Records > 0 {
		if err := s.record(r.Context(), Loss{Type: "journal.damage_accepted", Detail: was}); err != nil {
			return was, err
		}
	}
	was, err := s.opts.Journal.Losses.Accept(r.Context())
	if errors.Is(err, losses.ErrNoDamage) {
		err = refuse(http.StatusConflict, "%v", err)
	}
	return was, err
}
