package health

import (
	"fmt"

	"github.com/auditrelay/auditrelay/internal/ingest/credentials"
	"github.com/auditrelay/auditrelay/internal/workspace"
)

func (s *Silence) same(other Silence) bool { return s.ID == other.ID }

// begins describes a silence in one line: "silence of shop/live until 2026-11-22 14:00:00 UTC
// by ann@host: upgrade".
func (s *Silence) begins() string {
	return fmt.Sprintf("silence of %s until %s by %s: %s", displayName(s.of()), clock(s.Until), s.Person, s.Reason)
}

func (s *Silence) ends(by workspace.Person) string {
	return fmt.Sprintf("silence of %s ended by %s, before %s; its reason was: %s", displayName(s.of()), by, clock(s.Until), s.Reason)
}

func displayName(name credentials.Environment) string {
	if name == AllEnvironments {
		return "all environments"
	}
	return name.String()
}
