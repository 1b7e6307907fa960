package credentials

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/auditrelay/auditrelay/config"
)

// Environment is the scope of a credential.
type Environment struct{ Project, Environment string }

// EnvironmentOf is the scope of a configured environment's credentials.
func EnvironmentOf(e config.Environment) Environment { return Environment{e.Project, e.Environment} }

// Username is the name of the environment's generated credential: its slugs, readable,
// and a hash of both. So no two environments share one ("a.b"/"c" and "a"/"b.c", or
// slugs with a difference after the cut). It is the same at every start. It holds
// letters, digits, "-", "_" and ".", all of which are safe in Basic auth (no
// colon), in a key of the table and in a log.
func (e Environment) Username() string {
	// Quoted: to move a character between the slugs makes another input.
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %q", e.Project, e.Environment))
	return readable(e.Project) + "." + readable(e.Environment) + "." + hex.EncodeToString(sum[:6])
}

func (e Environment) String() string { return e.Project + "/" + e.Environment }

// readable keeps the harmless characters of a slug, up to 40 bytes.
func readable(slug string) string {
	keep := func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '-', r == '_':
			return r
		}
		return '_'
	}
	name := strings.Map(keep, slug)
	return name[:min(len(name), 40)]
}
