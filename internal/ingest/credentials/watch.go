package credentials

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/auditrelay/auditrelay/internal/retry"
	"github.com/auditrelay/auditrelay/internal/store"
)

// prefix begins the keys of the records; a user name follows.
const prefix = "credentials/"

// readAll takes every record of the table. A configured environment without one is asked
// for by its key: the table says whether the record may have been lost.
func (s *Store) readAll(ctx context.Context) error {
	all, err := s.table.List(ctx, prefix)
	if err != nil {
		return err
	}
	for _, v := range all {
		s.take(v)
	}
	for name := range s.configured.Load().names {
		v, err := s.table.Get(ctx, prefix+name)
		if err != nil {
			return err
		}
		s.take(v)
	}
	return nil
}

// follow applies the changes of other relays, until ctx or the store ends. If a watch
// fails, a new one begins with the whole table; meanwhile the known credentials serve.
func (s *Store) follow(ctx context.Context) {
	defer close(s.done)
	for {
		for v, err := range s.table.Watch(ctx, prefix) {
			if errors.Is(err, store.ErrClosed) {
				return
			}
			if err != nil {
				s.log.Debug("watching the credentials was interrupted; it goes on", "error", err)
				break
			}
			s.take(v)
		}
		if retry.Sleep(ctx, time.Second) != nil {
			return
		}
	}
}

// The problems of a record, in a [Damage].
const (
	olderRecord = "values of the store's table were lost, and the record of this credential may be an older one: a password that was revoked since may be accepted again, and one that was made since may be refused; rotate it with 'auditrelay credentials rotate'"
	lostRecord  = "values of the store's table were lost, perhaps with the record of this credential; if there was one, pushes with it are refused until the relay sets a new credential"
)

// take applies a value of the table. A record that cannot be decoded does not pass for an
// empty one: the environment keeps the known one, and the next change writes over it.
func (s *Store) take(v store.Value) {
	name := strings.TrimPrefix(v.Key, prefix)
	env, configured := s.configured.Load().names[name]
	r := stored{revision: v.Rev, doubtful: v.Doubtful}
	if v.Data != nil { // else there is none, or somebody removed it
		var err error
		if r.record, err = decodeRecord(v.Data); err != nil {
			if configured && s.apply(name, r, true) {
				s.report(Damage{env, err.Error() + "; only passwords that this relay knew before are accepted, until it sets a new credential", true})
			}
			return
		}
	}
	if !configured && v.Data != nil && r.environment().Username() != name {
		return // it is none of ours
	}
	switch {
	case !s.apply(name, r, false) || !v.Doubtful || !configured:
	case v.Data == nil:
		s.report(Damage{env, lostRecord, true})
	default:
		s.report(Damage{env, olderRecord, false})
	}
}

// Damage is a damaged credential record.
type Damage struct {
	Environment Environment
	// Problem names the damage, and the remedy.
	Problem string
	// Lost says that nothing is left, so that pushes with the environment's generated
	// credential are refused until it is replaced.
	Lost bool
}

// report logs and tells of damage.
func (s *Store) report(d Damage) {
	s.log.Error("a credential record was damaged", "project", d.Environment.Project, "environment", d.Environment.Environment,
		"problem", d.Problem, "lost", d.Lost)
	if s.tell != nil {
		s.tell(d)
	}
}

// Reported ends the doubt about the record of an environment, once its damage stands in a
// durable place: later starts report it no more. The passwords stay as they are known.
func (s *Store) Reported(ctx context.Context, env Environment) error {
	r, err := s.known(env)
	if err != nil || !r.doubtful {
		return err
	}
	err = s.write(ctx, env, r, func(*record, time.Time) error { return nil })
	if errors.Is(err, store.ErrConflict) {
		return nil // it was replaced meanwhile
	}
	return err
}
