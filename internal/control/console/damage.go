package console

import (
	"context"

	"github.com/auditrelay/auditrelay/internal/journal/quarantine"
)

// acceptDamage lets sinks pass over the damage. A crash between the two steps leaves an entry
// of the intent; the command, given again, makes another.
func (s *Server) acceptDamage(ctx context.Context, _ none) (quarantine.Damage, error) {
	if was := s.opts.Quarantine.Damage(); was.Records > 0 {
		if err := s.record(ctx, Loss{Type: "journal.damage_accepted", Detail: was}); err != nil {
			return was, err
		}
	}
	was, err := s.opts.Quarantine.Accept(ctx)
	if err == nil {
		s.opts.Logger.Warn("damage of the journal is accepted; sinks pass over it", "damaged", was.Records, "first_position", was.First)
	}
	return was, err
}
