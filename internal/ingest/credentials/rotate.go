package credentials

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/auditrelay/auditrelay/config/secret"
	"github.com/auditrelay/auditrelay/internal/retry"
	"github.com/auditrelay/auditrelay/internal/store"
)

// Issued is a generated credential: its password is shown here and never again.
type Issued struct {
	Username string
	Password secret.Text // 43 characters of base64url, 256 random bits
	LastFour string
}

// State describes an environment's generated credential by the last four characters, as
// the API's masked read shows them.
type State struct {
	Username string
	Current  string    // empty: none was promoted yet
	Made     time.Time // when the current one was made
	Pending  string    // empty: none is prepared
	Replaced []string  // accepted for a while yet, the newest first
}

// State describes an environment's generated credential.
func (s *Store) State(env Environment) (State, error) {
	r, err := s.known(env)
	if err != nil {
		return State{}, err
	}
	st := State{Username: env.Username()}
	for _, h := range r.Passwords {
		switch {
		case h.State == StateCurrent:
			st.Current, st.Made = h.LastFour, h.Created
		case h.State == StatePending:
			st.Pending = h.LastFour
		case time.Now().Before(h.Until):
			st.Replaced = append(st.Replaced, h.LastFour)
		}
	}
	return st, nil
}

// Prepare makes a new password for env, and returns once its hash is durable: from then
// on it is accepted, as well as the current one, for as long as it takes to be promoted or
// dropped. A crash after it leaves a pending password that nobody knows. It is dropped
// when the API does not show it.
//
// A pending password may have reached the API all the same (a PUT with a lost answer):
// it is accepted for the overlap.
func (s *Store) Prepare(ctx context.Context, env Environment) (issued Issued, err error) {
	err = s.change(ctx, "prepare", env, func(r *record, now time.Time) error {
		h, password := generate(r, now)
		r.retire(StatePending, now.Add(s.configured.Load().overlap))
		r.Passwords = append(r.Passwords, h)
		issued = Issued{Username: env.Username(), Password: password, LastFour: h.LastFour}
		return nil
	})
	if err != nil {
		return Issued{}, err
	}
	return issued, nil
}

// Promote makes the password with these last four characters at the API the current one,
// and accepts the replaced one for the overlap. It takes a pending one, and also a
// replaced one before its expiry: two relays may have set theirs at once, and the API
// knows the order. Promoting the current one changes nothing. If none of them ends so, it
// returns [ErrUnknown].
func (s *Store) Promote(ctx context.Context, env Environment, lastFour string) error {
	return s.change(ctx, "promote", env, func(r *record, now time.Time) error {
		switch i := r.find(lastFour); {
		case i < 0:
			return ErrUnknown
		case r.Passwords[i].State == StateCurrent:
			return errNoChange
		default:
			r.promote(i, now.Add(s.configured.Load().overlap))
			return nil
		}
	})
}

// Drop gives up the pending password, as the API does not show it. It is accepted for
// the overlap all the same: the PUT with it may yet be on its way, and then it is
// promoted.
func (s *Store) Drop(ctx context.Context, env Environment, lastFour string) error {
	return s.change(ctx, "drop", env, func(r *record, now time.Time) error {
		if i := r.find(lastFour); i < 0 || r.Passwords[i].State != StatePending {
			return errNoChange
		}
		r.retire(StatePending, now.Add(s.configured.Load().overlap))
		return nil
	})
}

// errNoChange ends a change with nothing written, and is no error.
var errNoChange = errors.New("nothing to change")

// change edits the newest record of env and writes it, if nobody else has written since.
// Otherwise it begins again with theirs. An error says what failed.
func (s *Store) change(ctx context.Context, what string, env Environment, edit func(*record, time.Time) error) error {
	r, err := s.known(env)
	if err == nil {
		err = s.write(ctx, env, r, edit)
	}
	for conflicts := 0; errors.Is(err, store.ErrConflict) && conflicts < 20; conflicts++ {
		if err = retry.Sleep(ctx, time.Duration(conflicts)*10*time.Millisecond); err != nil {
			break
		}
		if r, err = s.read(ctx, env); err == nil {
			err = s.write(ctx, env, r, edit)
		}
	}
	if err != nil {
		return fmt.Errorf("%s a credential of %s: %w", what, env, err)
	}
	return nil
}

func (s *Store) write(ctx context.Context, env Environment, r stored, edit func(*record, time.Time) error) error {
	now := time.Now()
	r.Version, r.Project, r.Environment = recordVersion, env.Project, env.Environment
	// Pruned first: an expired password must not be promoted.
	r.prune(now)
	if err := edit(&r.record, now); errors.Is(err, errNoChange) {
		return nil
	} else if err != nil {
		return err
	}
	value, err := json.Marshal(r.record)
	if err != nil {
		return err
	}
	// A crash, or a lost answer, around this line leaves the old record or the new one
	// whole; both accept every password that may be at the API.
	key := prefix + env.Username()
	if r.revision, err = s.table.Put(ctx, key, value, store.If{Key: key, Rev: r.revision}); err != nil {
		return err
	}
	r.doubtful = false
	s.apply(env.Username(), r, false)
	return nil
}

// read gets the record from the table. One that cannot be decoded, or that was perhaps lost,
// stands here as it is known, with its revision, so that the change writes over it.
func (s *Store) read(ctx context.Context, env Environment) (stored, error) {
	v, err := s.table.Get(ctx, prefix+env.Username())
	if err != nil || v.Data == nil && !v.Doubtful {
		return stored{revision: v.Rev}, err
	}
	r, err := decodeRecord(v.Data)
	if known, failed := s.known(env); err != nil || v.Doubtful && known.revision > v.Rev {
		known.revision = v.Rev
		return known, failed
	}
	return stored{r, v.Rev, v.Doubtful}, nil
}

// generate draws a password whose last four characters tell it from the others
// of the record.
func generate(r *record, now time.Time) (hashed, secret.Text) {
	for {
		var b [32]byte
		_, _ = rand.Read(b[:]) // never fails, see crypto/rand
		password := secret.New(base64.RawURLEncoding.EncodeToString(b[:]))
		if last := password.LastFour(); r.find(last) < 0 {
			return hashed{State: StatePending, Hash: sum(password.Reveal()), LastFour: last, Created: now.UTC()}, password
		}
	}
}
