package credentials

import (
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/auditrelay/auditrelay/config"
)

// index finds an environment by its credential. It is immutable once it is
// published.
//
// The name and the secret are looked up together: the map's key is a hash of both. So an
// unknown name and a wrong password are the same miss, and no branch or comparison
// depends on the right part of a guess: a guess with one wrong character has an
// unrelated key. The hash is keyed with bytes that are drawn at each start, so that the time
// of the map's own comparisons tells nothing about a key that was computed beforehand.
type index struct {
	key    digest
	grants map[digest]grant
}

// grant is the environment of a credential, and when it ends (zero for never).
type grant struct {
	environment Environment
	former      bool // the environment is not configured any more
	until       time.Time
	*uses
}

// uses are of one credential. An index shares them with the next one.
type uses struct {
	last   atomic.Int64 // in Unix seconds; 0 for never
	former atomic.Int64 // pushes that were refused since the environment is not configured
}

func (u *uses) lastTime() time.Time {
	if u == nil || u.last.Load() == 0 {
		return time.Time{}
	}
	return time.Unix(u.last.Load(), 0).UTC()
}

// The kinds keep a Datadog key from being taken for a Basic credential.
const (
	kindBasic  = 'b'
	kindAPIKey = 'k'
)

func newIndex() *index {
	ix := &index{grants: map[digest]grant{}}
	_, _ = rand.Read(ix.key[:]) // never fails, see crypto/rand
	return ix
}

// id is the map's key. It allocates nothing.
func (ix *index) id(kind byte, name, password digest) digest {
	var b [1 + 3*sha256.Size]byte
	b[0] = kind
	copy(b[1:], ix.key[:])
	copy(b[1+sha256.Size:], name[:])
	copy(b[1+2*sha256.Size:], password[:])
	return sha256.Sum256(b[:])
}

// find looks a credential up as of now, of an environment that is configured or of a former one.
func (ix *index) find(kind byte, name, password digest, former bool) (Environment, bool) {
	now := time.Now()
	g, ok := ix.grants[ix.id(kind, name, password)]
	if !ok || g.former != former || !g.until.IsZero() && !now.Before(g.until) {
		return Environment{}, false
	}
	if s := now.Unix(); g.last.Load() != s {
		g.last.Store(s)
	}
	if former {
		g.uses.former.Add(1)
	}
	return g.environment, true
}

// addStatic takes the credentials of the config; before is the previous index, with their uses. A
// credential of two environments is refused: its events could be taken for the wrong one's.
func (ix *index) addStatic(environments []config.Environment, before *index) error {
	for _, e := range environments {
		env := Environment{e.Project, e.Environment}
		for i, c := range e.Credentials {
			id := ix.staticID(c)
			if other, taken := ix.grants[id]; taken && other.environment != env {
				return fmt.Errorf("credential %d of %s is one of %s too", i+1, env, other.environment)
			}
			ix.add(id, grant{environment: env}, before)
		}
	}
	return nil
}

// add takes a credential, with the uses that it had in the previous index.
func (ix *index) add(id digest, g grant, before *index) {
	if g.uses = before.grants[id].uses; g.uses == nil {
		g.uses = new(uses)
	}
	ix.grants[id] = g
}

func (ix *index) staticID(c config.Credential) digest {
	if !c.APIKey.Empty() {
		return ix.id(kindAPIKey, digest{}, sum(c.APIKey.Reveal()))
	}
	return ix.id(kindBasic, sum(c.Username), sum(c.Password.Reveal()))
}

// addRecord takes an environment's generated credentials; before is the previous index,
// with their uses.
func (ix *index) addRecord(name string, r *record, former bool, before *index) {
	for _, h := range r.Passwords {
		ix.add(ix.id(kindBasic, sum(name), h.Hash), grant{environment: r.environment(), former: former, until: h.Until}, before)
	}
}

// sum hashes a text without copying it to the heap, if it is not overlong.
func sum(text string) digest {
	var b [128]byte
	if len(text) > len(b) {
		return sha256.Sum256([]byte(text))
	}
	return sha256.Sum256(b[:copy(b[:], text)])
}
