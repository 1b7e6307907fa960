// Package credentials has the credentials that may push events: those that the
// relay generates for an environment, and those of the config.
//
// Of a generated one only a hash is kept, in a JetStream key-value bucket that
// several relays may share. It is rotated in two durable phases, so that a
// push is never refused for a crash between the phases: [Store.Prepare] makes
// a password that is accepted from then on; once it stands in the environment's
// streaming config, [Store.Promote] makes it the current one, and the one that
// it replaces is accepted for an overlap.
package credentials

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/internal/streams"
)

// Options say where credentials are kept, and whose.
type Options struct {
	// Prefix begins the bucket's name: PREFIX_credentials. Default AUDITRELAY.
	Prefix string
	// Replicas of the bucket. Default 1.
	Replicas int
	// Environments are those whose credentials are accepted: the generated
	// ones, and the ones given here. What the bucket has of others stays there,
	// and is refused.
	Environments []config.Environment
	// Overlap is how long a replaced credential is accepted; 0 is not at all.
	Overlap time.Duration
	// Dir takes a second copy of each record. Empty: none is kept.
	Dir string
	// Damaged, where set, is called for each record that is found damaged.
	Damaged func(Damage)
	// Logger takes what goes wrong behind the callers' backs. Default: nowhere.
	Logger *slog.Logger
}

// Store checks and rotates credentials. It may be used by many goroutines.
type Store struct {
	kv      jetstream.KeyValue
	overlap time.Duration
	log     *slog.Logger
	names   map[string]Environment // of the bucket's keys; immutable
	static  *index                 // the config's credentials; immutable
	owners  map[string]Environment // of all user names; immutable

	environments []config.Environment // immutable

	copies copies
	tell   func(Damage)
	// Of Open, and then of the watch: what the bucket has and cannot be read.
	damaged     map[string]error
	badRevision map[string]uint64
	healed      bool // set once, by Open: before, the bucket may have older records than the copies

	index atomic.Pointer[index] // what Basic and APIKey read; replaced whole

	mu      sync.Mutex        // guards records and the replacement of index
	records map[string]stored // by key, as newest known here

	stop context.CancelFunc
	done chan struct{} // closed when the watch has ended
}

// stored is a record with the bucket's revision of it.
type stored struct {
	record
	revision uint64
}

// Open makes the bucket where it is missing, and returns once every credential
// that it holds is known. ctx bounds the opening only; see [Store.Close].
func Open(ctx context.Context, js jetstream.JetStream, o Options) (*Store, error) {
	s := &Store{
		overlap: o.Overlap, environments: o.Environments,
		log:     cmp.Or(o.Logger, slog.New(slog.DiscardHandler)),
		names:   map[string]Environment{},
		owners:  map[string]Environment{},
		static:  newIndex(),
		records: map[string]stored{},
		copies:  copies{o.Dir},
		tell:    o.Damaged,
		damaged: map[string]error{}, badRevision: map[string]uint64{},
		done: make(chan struct{}),
	}
	for _, e := range o.Environments {
		env := Environment{e.Project, e.Environment}
		s.names[env.Username()] = env
		for _, c := range e.Credentials {
			if c.Username != "" {
				s.owners[c.Username] = env
			}
		}
	}
	maps.Copy(s.owners, s.names)
	if err := s.static.addStatic(o.Environments); err != nil {
		return nil, err
	}
	s.index.Store(s.static)
	err := streams.Await(ctx, s.log, "the credentials bucket", func(ctx context.Context) (err error) {
		s.kv, err = js.CreateOrUpdateKeyValue(ctx, jetstream.KeyValueConfig{
			Bucket:      cmp.Or(o.Prefix, "AUDITRELAY") + "_credentials",
			Description: "hashes of the credentials that may push events",
			History:     1,
			Replicas:    max(o.Replicas, 1),
		})
		if err != nil {
			return fmt.Errorf("open the credentials bucket: %w", err)
		}
		return s.start(ctx)
	})
	if err != nil {
		return nil, err
	}
	return s, nil
}

// Close ends the watch on the bucket. Checks go on with what is known.
func (s *Store) Close() {
	s.stop()
	<-s.done
}

// Basic returns the environment that an HTTP Basic credential may push to. It
// takes the same time for an unknown name as for a wrong password.
func (s *Store) Basic(username, password string) (Environment, bool) {
	ix := s.index.Load()
	return ix.find(ix.id(kindBasic, sum(username), sum(password)), time.Now())
}

// APIKey returns the environment that a DD-API-KEY may push to.
func (s *Store) APIKey(key string) (Environment, bool) {
	ix := s.index.Load()
	return ix.find(ix.id(kindAPIKey, digest{}, sum(key)), time.Now())
}

// Owner returns the environment that a user name belongs to, whatever the password.
func (s *Store) Owner(username string) (Environment, bool) {
	env, ok := s.owners[username]
	return env, ok
}

// apply takes a record, from the watch or from an own update, if it is newer
// than the one that is known.
func (s *Store) apply(key string, r stored) {
	env, ok := s.names[key]
	if !ok {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.revision <= s.records[key].revision {
		return
	}
	s.records[key] = r
	// Before a change is told to be durable: a crash before this line leaves an older
	// copy, whose passwords are accepted as well.
	if r.Version != 0 && s.healed {
		if err := s.copies.write(key, &r.record); err != nil {
			s.log.Warn("copying a credential record failed; an older copy stands", "project", env.Project, "environment", env.Environment, "error", err)
		}
	}
	ix := &index{key: s.static.key, grants: make(map[digest]grant, len(s.static.grants)+2*len(s.records))}
	for id, g := range s.static.grants {
		ix.grants[id] = g
	}
	for key, r := range s.records {
		ix.addRecord(s.names[key], &r.record, s.index.Load())
	}
	s.index.Store(ix)
	s.log.Debug("credentials changed", "project", env.Project, "environment", env.Environment, "revision", r.revision)
}

// known returns the newest record of env that was seen here.
func (s *Store) known(env Environment) (stored, error) {
	key := env.Username()
	if _, ok := s.names[key]; !ok {
		return stored{}, fmt.Errorf("%w: %s", ErrNotConfigured, env)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.records[key], nil
}

var (
	// ErrNotConfigured says that an environment is not one of Options.Environments.
	ErrNotConfigured = errors.New("the environment is not configured")
	// ErrUnknown says that no accepted credential has the last four characters.
	ErrUnknown = errors.New("no such credential")
)
