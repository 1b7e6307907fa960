package credentials

import (
	"cmp"
	"slices"
	"time"
)

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
