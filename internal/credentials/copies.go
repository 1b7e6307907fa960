package credentials

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/auditrelay/auditrelay/internal/durable"
)

// CopiesDir is the folder under the data directory for Options.Dir.
const CopiesDir = "credentials"

// copies keeps each record a second time, in a file with a checksum. Otherwise a record
// damaged in the bucket would refuse good pushes, and the provider never sends those
// again once it has given up. Without a folder nothing is kept.
type copies struct{ dir string }

// copied is the content of such a file.
type copied struct {
	Record json.RawMessage `json:"record"`
	SHA256 string          `json:"sha256"` // of Record, in hex
}

// errCopy marks a damaged copy.
var errCopy = errors.New("the copy of a credential record is damaged")

func (c copies) path(key string) string { return filepath.Join(c.dir, key+".json") }

// read returns the copy of a record; fs.ErrNotExist if there is none.
func (c copies) read(key string) (record, error) {
	if c.dir == "" {
		return record{}, fs.ErrNotExist
	}
	data, err := os.ReadFile(c.path(key))
	if err != nil {
		return record{}, fmt.Errorf("read the copy of a credential record: %w", err)
	}
	var file copied
	if err := json.Unmarshal(data, &file); err != nil {
		return record{}, fmt.Errorf("%w: %w", errCopy, err)
	}
	if digest := sha256.Sum256(file.Record); hex.EncodeToString(digest[:]) != file.SHA256 {
		return record{}, fmt.Errorf("%w: its checksum fails", errCopy)
	}
	return decodeRecord(file.Record)
}

// write keeps a record. A crash leaves the old copy or the new one whole; when it
// returns, a power loss does not undo it.
func (c copies) write(key string, r *record) error {
	if c.dir == "" {
		return nil
	}
	raw, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("encode a credential record: %w", err)
	}
	digest := sha256.Sum256(raw)
	data, err := json.Marshal(copied{raw, hex.EncodeToString(digest[:])})
	if err != nil {
		return fmt.Errorf("encode a credential record: %w", err)
	}
	err = durable.MakeDir(c.dir)
	if err == nil {
		err = durable.WriteFile(c.path(key), data)
	}
	if err != nil {
		return fmt.Errorf("keep a copy of a credential record: %w", err)
	}
	return nil
}

// remove forgets a copy; without one it does nothing.
func (c copies) remove(key string) error {
	if c.dir == "" {
		return nil
	}
	if err := os.Remove(c.path(key)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove the copy of a credential record: %w", err)
	}
	return nil
}

// Damage is a damaged credential record.
type Damage struct {
	Environment Environment
	// Problem names the damage, and the remedy.
	Problem string
	// Lost: nothing is left, and pushes with the environment's generated credential are
	// refused until it is replaced.
	Lost bool
}

// heal compares the bucket with the copies, once the whole bucket was seen. A record
// damaged, gone or older there is put back from its copy: the bucket may show an older
// value of a key if the newest one is lost on disk.
func (s *Store) heal(ctx context.Context) error {
	for key, env := range s.names {
		inBucket, err := s.known(env)
		if err != nil {
			return err
		}
		copied, copyErr := s.copies.read(key)
		switch bad := s.damaged[key]; {
		case copyErr == nil && (bad != nil || inBucket.revision == 0 || inBucket.Changed.Before(copied.Changed)):
			err = s.putBack(ctx, env, copied, inBucket.revision, bad)
		case bad != nil:
			s.report(Damage{env, fmt.Sprintf("%v; there is no sound copy: %v", bad, copyErr), true})
		case copyErr == nil && copied.Changed.Before(inBucket.Changed):
			err = s.copies.write(key, &inBucket.record)
		case inBucket.revision > 0 && copyErr != nil:
			err = s.copyAgain(key, env, &inBucket.record, copyErr)
		case errors.Is(copyErr, errCopy):
			s.report(Damage{env, fmt.Sprintf("%v, and the bucket has no record", copyErr), true})
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// putBack writes a copy over the bucket's record at a revision. If the bucket has another
// revision, its record decides: it may be newer, by another relay, or an older one unseen
// by the watch.
func (s *Store) putBack(ctx context.Context, env Environment, r record, revision uint64, bad error) error {
	if bad == nil {
		bad = errors.New("the newest credential record is gone from the bucket")
	}
	if at, ok := s.badRevision[env.Username()]; ok {
		revision = at
	}
	value, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("encode a credential record: %w", err)
	}
	newest, err := s.put(ctx, env, value, revision)
	if errors.Is(err, jetstream.ErrKeyRevisionMismatch) {
		return s.overtaken(ctx, env, r, revision, bad)
	}
	if err != nil {
		return fmt.Errorf("put back the credential record of %s: %w", env, err)
	}
	s.apply(env.Username(), stored{r, newest})
	s.report(Damage{env, bad.Error() + "; it was put back from its copy", false})
	return nil
}

// overtaken takes the bucket's record in place of a revision. If it is older than the
// copy, or damaged, it puts the copy back over it.
func (s *Store) overtaken(ctx context.Context, env Environment, r record, revision uint64, bad error) error {
	entry, err := s.kv.Get(ctx, env.Username())
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		return nil // another relay has removed it, and the watch reports this
	}
	if err != nil {
		return fmt.Errorf("read the credential record of %s again: %w", env, err)
	}
	found, damage := decodeRecord(entry.Value())
	if damage == nil && !found.Changed.Before(r.Changed) {
		s.take(entry)
		return s.copies.write(env.Username(), &found)
	}
	if entry.Revision() == revision {
		s.log.Warn("a credential record could not be put back: the bucket refuses a change of its newest revision; start the relay again",
			"project", env.Project, "environment", env.Environment, "revision", revision)
		return nil
	}
	delete(s.badRevision, env.Username())
	return s.putBack(ctx, env, r, entry.Revision(), bad)
}

// copyAgain replaces a copy: a damaged one, or a missing one after a relay without
// copies.
func (s *Store) copyAgain(key string, env Environment, r *record, copyErr error) error {
	if !errors.Is(copyErr, fs.ErrNotExist) {
		s.report(Damage{env, copyErr.Error() + "; it was made again", false})
	}
	return s.copies.write(key, r)
}

// report logs and tells of damage.
func (s *Store) report(d Damage) {
	s.log.Error("a credential record was damaged", "project", d.Environment.Project, "environment", d.Environment.Environment,
		"problem", d.Problem, "lost", d.Lost)
	if s.tell != nil {
		s.tell(d)
	}
}
