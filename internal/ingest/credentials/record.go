package credentials

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/auditrelay/auditrelay/config"
)

// record is the table's value for one environment, as JSON.
type record struct {
	Version     int    `json:"version"`
	Environment string `json:"environment"`
	Project     string `json:"project"`
	// Passwords are those that are accepted. At most one is current, and one is pending. Of
	// those that were replaced the newest is first.
	Passwords []hashed `json:"passwords,omitempty"`
}

func (r *record) environment() Environment { return Environment{r.Project, r.Environment} }

const (
	recordVersion = 1
	// maxReplaced bounds a record, whatever goes wrong with rotations.
	maxReplaced = 16
)

// hashed is a generated password after it was handed out.
//
// The hash is a plain SHA-256: right for these passwords, and wrong for a person's.
// Each has 256 random bits, so there is nothing to guess, and a slow hash would only
// make every push cost milliseconds.
type hashed struct {
	State    string    `json:"state"` // current, pending or replaced
	Hash     digest    `json:"hash"`
	LastFour string    `json:"last_four"`
	Created  time.Time `json:"created"`
	Until    time.Time `json:"until,omitzero"` // it is accepted before then; zero means for good
}

// digest is a SHA-256, in hex when encoded.
type digest [sha256.Size]byte

// MarshalText implements encoding.TextMarshaler.
func (d digest) MarshalText() ([]byte, error) { return hex.AppendEncode(nil, d[:]), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (d *digest) UnmarshalText(b []byte) error {
	if len(b) != hex.EncodedLen(len(d)) {
		return errors.New("a hash has the wrong length")
	}
	_, err := hex.Decode(d[:], b)
	return err
}

// decodeRecord reads the value under the key of env.
func decodeRecord(value []byte) (record, error) {
	var r record
	if err := json.Unmarshal(value, &r); err != nil {
		return record{}, fmt.Errorf("decode a credential record: %w", err)
	}
	if r.Version != recordVersion {
		return record{}, fmt.Errorf("decode a credential record: version %d is not known", r.Version)
	}
	for _, h := range r.Passwords {
		if !slices.Contains(states[:], h.State) {
			return record{}, fmt.Errorf("decode a credential record: the state %q is not known", h.State)
		}
	}
	return r, nil
}

// find returns the place of the password that ends with lastFour, or -1.
func (r *record) find(lastFour string) int {
	return slices.IndexFunc(r.Passwords, func(h hashed) bool { return h.LastFour == lastFour })
}

// retire keeps the password of a state accepted until then, and no longer.
func (r *record) retire(state string, until time.Time) {
	i := slices.IndexFunc(r.Passwords, func(h hashed) bool { return h.State == state })
	if i < 0 {
		return
	}
	old := r.Passwords[i]
	old.State, old.Until = StateReplaced, until
	r.Passwords = slices.Insert(slices.Delete(r.Passwords, i, i+1), 0, old)
}

// prune forgets expired passwords. The others are in memory of their own from then on.
func (r *record) prune(now time.Time) {
	replaced := 0
	r.Passwords = slices.DeleteFunc(slices.Clone(r.Passwords), func(h hashed) bool {
		if h.State != StateReplaced {
			return false
		}
		replaced++
		return !now.Before(h.Until) || replaced > maxReplaced
	})
}

// promote makes the i-th password the current one.
func (r *record) promote(i int, until time.Time) {
	chosen := r.Passwords[i]
	chosen.State, chosen.Until = StateCurrent, time.Time{}
	r.Passwords = slices.Delete(r.Passwords, i, i+1)
	r.retire(StateCurrent, until)
	r.Passwords = append(r.Passwords, chosen)
}

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
