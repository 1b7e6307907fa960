package credentials

import (
	"maps"
	"time"

	"github.com/auditrelay/auditrelay/config"
)

// configured is what the configuration says; it is immutable.
type configured struct {
	environments []config.Environment
	overlap      time.Duration
	names        map[string]Environment // by user name
	owners       map[string]Environment // of all user names
	static       *index                 // the config's credentials
}

func newConfigured(environments []config.Environment, overlap time.Duration, static *index) *configured {
	c := &configured{
		environments: environments, overlap: overlap, static: static,
		names: map[string]Environment{}, owners: map[string]Environment{},
	}
	for _, e := range environments {
		env := Environment{e.Project, e.Environment}
		c.names[env.Username()] = env
		for _, credential := range e.Credentials {
			if credential.Username != "" {
				c.owners[credential.Username] = env
			}
		}
	}
	maps.Copy(c.owners, c.names)
	return c
}

// Check returns an error for environments that a Store refuses.
func Check(environments []config.Environment) error {
	static := newIndex()
	return static.addStatic(environments, static)
}

// Reconfigure replaces Options.Environments and Options.Overlap. From its return on, the credentials
// of the new configuration are accepted, and no others.
func (s *Store) Reconfigure(environments []config.Environment, overlap time.Duration) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.index.Load()
	static := &index{key: before.key, grants: map[digest]grant{}}
	if err := static.addStatic(environments, before); err != nil {
		return err
	}
	s.configured.Store(newConfigured(environments, overlap, static))
	s.makeIndex()
	return nil
}

// makeIndex replaces the index. mu is held.
func (s *Store) makeIndex() {
	now := s.configured.Load()
	ix := &index{key: now.static.key, grants: make(map[digest]grant, len(now.static.grants)+2*len(s.records))}
	maps.Copy(ix.grants, now.static.grants)
	for name, r := range s.records {
		_, configured := now.names[name]
		ix.addRecord(name, &r.record, !configured, s.index.Load())
	}
	s.index.Store(ix)
}
