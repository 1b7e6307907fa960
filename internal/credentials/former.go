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
	// Pushes counts those refused since the start; LastPush is the time of the last one.
	Pushes   int64
	LastPush time.Time
}

// former is a record of the table whose environment is not configured.
type former struct {
	stored
	pushes int64
	last   time.Time
}

// Former returns the environment of a generated credential if it is not configured any
// more, and counts the push. It takes the same time for an unknown name as for a wrong
// password.
func (s *Store) Former(username, password string) (Environment, bool) {
	ix, now := s.past.Load(), time.Now()
	env, ok := ix.find(ix.id(kindBasic, sum(username), sum(password)), now)
	if !ok {
		return Environment{}, false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if f := s.formers[env.Username()]; f != nil { // else its record was removed just now
		f.pushes++
		f.last = now
	}
	return env, true
}

// Formers lists the environments that are not configured any more, in order.
func (s *Store) Formers() []Former {
	s.mu.Lock()
	defer s.mu.Unlock()
	var list []Former
	for _, f := range s.formers {
		one := Former{Environment: f.environment(), Pushes: f.pushes, LastPush: f.last}
		for h := range f.all {
			one.LastFour = append(one.LastFour, h.LastFour)
		}
		list = append(list, one)
	}
	slices.SortFunc(list, func(a, b Former) int {
		return cmp.Or(cmp.Compare(a.Project, b.Project), cmp.Compare(a.Environment.Environment, b.Environment.Environment))
	})
	return list
}

func (f *former) environment() Environment { return Environment{f.Project, f.Environment} }

// applyFormer takes the record of an environment that is not configured. One under another
// name than the environment's own user name is none of ours.
func (s *Store) applyFormer(name string, r stored) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.formers[name]
	if f != nil && r.revision <= f.revision {
		return
	}
	if f == nil {
		f = &former{}
	}
	f.stored = r
	s.formers[name] = f
	if r.Version == 0 || f.environment().Username() != name { // it was removed
		delete(s.formers, name)
	}
	before := s.past.Load()
	ix := &index{key: before.key, grants: map[digest]grant{}}
	for _, f := range s.formers {
		ix.addRecord(f.environment(), &f.record, before)
	}
	s.past.Store(ix)
}
