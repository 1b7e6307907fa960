package credentials

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/auditrelay/auditrelay/config"
)

// The kinds and states in the list of [Store.List].
const (
	KindGenerated = "generated"
	KindStatic    = "static" // of the configuration

	StateCurrent  = "current"
	StatePending  = "pending"  // made, and not yet seen in the workspace
	StateReplaced = "replaced" // accepted until then
)

// states are those of generated credentials, as lists are ordered.
var states = [...]string{StateCurrent, StatePending, StateReplaced}

// Listed is an accepted credential, without its secret.
type Listed struct {
	Project     string `json:"project"`
	Environment string `json:"environment"`
	Kind        string `json:"kind"`
	// State is empty of a static one.
	State string `json:"state,omitempty"`
	// Username is empty of an API key.
	Username string `json:"username,omitempty"`
	// LastFour are the last characters, as the API's masked read shows them; empty
	// where a secret is too short to give them away.
	LastFour string `json:"last_four,omitempty"`
	// Created is zero if it is not known, as it is of static ones.
	Created time.Time `json:"created,omitzero"`
	// Until is when it ceases to be accepted; it is zero for never.
	Until time.Time `json:"accepted_until,omitzero"`
	// LastUsed is when it was last accepted, to the second; it is zero if that was not since the
	// start.
	LastUsed time.Time `json:"last_used,omitzero"`
}

// List gives every accepted credential, by environment in the order of the
// configuration, the generated ones first.
func (s *Store) List() []Listed {
	ix, now := s.index.Load(), time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	list := []Listed{}
	for _, e := range s.configured.Load().environments {
		env := Environment{e.Project, e.Environment}
		r := s.records[env.Username()].record
		for _, state := range states {
			for _, h := range r.Passwords {
				if h.State == state && (h.Until.IsZero() || now.Before(h.Until)) {
					list = append(list, ix.generated(env, h))
				}
			}
		}
		for _, c := range e.Credentials {
			list = append(list, ix.listedStatic(env, c))
		}
	}
	return list
}

func (ix *index) generated(env Environment, h hashed) Listed {
	return Listed{
		Project: env.Project, Environment: env.Environment, Kind: KindGenerated, State: h.State,
		Username: env.Username(), LastFour: h.LastFour, Created: h.Created, Until: h.Until,
		LastUsed: ix.grants[ix.id(kindBasic, sum(env.Username()), h.Hash)].lastTime(),
	}
}

func (ix *index) listedStatic(env Environment, c config.Credential) Listed {
	secret := c.Password
	if !c.APIKey.Empty() {
		secret = c.APIKey
	}
	return Listed{
		Project: env.Project, Environment: env.Environment, Kind: KindStatic,
		Username: c.Username, LastFour: secret.LastFour(), LastUsed: ix.grants[ix.staticID(c)].lastTime(),
	}
}

// Revoke ceases to accept a generated password at once, which is named by its last four
// characters. It returns once the change is durable, and [ErrUnknown] if there is no such
// password. If it is the current one, nothing takes its place: the next look at the streaming
// config finds an unknown credential there, and sets a new one.
func (s *Store) Revoke(ctx context.Context, env Environment, lastFour string) error {
	return s.change(ctx, "revoke", env, func(r *record, _ time.Time) error {
		i := r.find(lastFour)
		if i < 0 {
			return ErrUnknown
		}
		r.Passwords = slices.Delete(r.Passwords, i, i+1)
		return nil
	})
}

// Former is an environment that the relay has made a credential for, and that is not
// configured any more. Whoever pushes with the credential is no stranger: the provider
// still sends the environment's event log here, and all of it is refused.
type Former struct {
	Environment
	// LastFour are the ends of the passwords that its streaming config may have.
	LastFour []string
	// Pushes counts those refused since the start; LastPush is the second of the last one.
	Pushes   int64
	LastPush time.Time
}

// Former returns the environment of a generated credential if it is not configured any
// more, and counts the push. It takes the same time for an unknown name as for a wrong
// password.
func (s *Store) Former(username, password string) (Environment, bool) {
	return s.index.Load().find(kindBasic, sum(username), sum(password), true)
}

// Formers lists the environments that are not configured any more, in order.
func (s *Store) Formers() []Former {
	ix := s.index.Load()
	s.mu.Lock()
	defer s.mu.Unlock()
	var list []Former
	for name, r := range s.records {
		if _, configured := s.configured.Load().names[name]; configured || r.Version == 0 { // or it was removed
			continue
		}
		one := Former{Environment: r.environment()}
		for _, h := range r.Passwords {
			one.LastFour = append(one.LastFour, h.LastFour)
			g, ok := ix.grants[ix.id(kindBasic, sum(name), h.Hash)]
			if !ok {
				continue // it was made just now
			}
			one.Pushes += g.uses.former.Load()
			if at := g.lastTime(); at.After(one.LastPush) {
				one.LastPush = at
			}
		}
		list = append(list, one)
	}
	slices.SortFunc(list, func(a, b Former) int {
		return cmp.Or(cmp.Compare(a.Project, b.Project), cmp.Compare(a.Environment.Environment, b.Environment.Environment))
	})
	return list
}
