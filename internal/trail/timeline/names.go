package timeline

import (
	"crypto/sha256"
	"encoding/base64"
	"strings"
)

// The names of projects, environments and settings are as long as the API likes. The index keeps a
// long one as its start and its hash, so that its memory is bounded and no two names are taken for
// one. The trail has the whole.
const (
	maxName = 256
	// startOfName is what is kept of a longer one, in bytes.
	startOfName = 200
	// beforeHash stands between the two: bounded ends a cut text by the first of its characters.
	beforeHash = "…#"
)

var hashBytes = base64.RawURLEncoding.EncodedLen(sha256.Size)

// ShortName is a name as the index has it. A name that only looks like the short form of another one
// is shortened too.
func ShortName(name string) string {
	at := len(name) - hashBytes - len(beforeHash)
	if len(name) <= maxName && (at < 0 || !strings.HasPrefix(name[at:], beforeHash)) {
		return name
	}
	sum := sha256.Sum256([]byte(name))
	return bounded(name, min(len(name)-1, startOfName)) + "#" + base64.RawURLEncoding.EncodeToString(sum[:])
}
