package access

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/auditrelay/auditrelay/internal/retry"
	"github.com/auditrelay/auditrelay/internal/store"
	"github.com/auditrelay/auditrelay/internal/trail/audit"
)

// sessionsKey is the table's key of the sessions. They are one value, so that their number is
// bounded, and so that none that was ended is left over.
const sessionsKey = "console/sessions"

const (
	// mostSessions bounds all sessions, and mostOfOne those of one person.
	mostSessions, mostOfOne = 200, 10
	// mostLinks bounds the links.
	mostLinks = 100
	// linkLength is how long a link is good.
	linkLength = 5 * time.Minute
	// seenEvery is how often a session's last use is written.
	seenEvery = time.Minute
	// writePatience bounds a write of the sessions.
	writePatience = 5 * time.Second
)

// Session is a person who is logged in.
type Session struct {
	// ID tells it from other sessions. It is no credential.
	ID     string       `json:"id"`
	Person audit.Person `json:"person"`
	Role   Role         `json:"role"`
	Begun  time.Time    `json:"begun"`
	// Seen is its last use, to a minute.
	Seen time.Time `json:"seen"`
	// Until is when it ends at the latest.
	Until time.Time `json:"until"`
}

// kept is a session as the table has it: by the hash of its token, so that nobody logs in with what
// is on the disk, and no look-up depends on a token's bytes.
type kept struct {
	Session
	Hash string `json:"hash"`
	// Rules is the fingerprint of the rules that it was given its role by. It ends with them.
	Rules string `json:"rules"`
}

// sessions are who is logged in, and the links that are still open. Links end with the process.
type sessions struct {
	table        store.Table
	length, idle time.Duration
	rules        string
	log          *slog.Logger

	writing sync.Mutex // held over a write of the table

	mu    sync.Mutex
	links []link    // the oldest first; guarded by mu
	live  []kept    // guarded by mu
	rev   uint64    // of the value that live was made from; guarded by mu
	wrote time.Time // when a write was last tried; guarded by mu
}

type link struct {
	hash   string // of its token
	person audit.Person
	until  time.Time
}

func hashOf(token string) string {
	sum := sha256.Sum256([]byte(token))
	return hex.EncodeToString(sum[:])
}

// load reads the sessions.
func (s *sessions) load(ctx context.Context) error {
	v, err := s.table.Get(ctx, sessionsKey)
	if err != nil {
		return fmt.Errorf("read the console's sessions: %w", err)
	}
	s.take(v)
	return nil
}

// take makes the sessions those of a value. Those that an older value has may have been revoked
// since, and are dropped; those of other rules are, too.
func (s *sessions) take(v store.Value) {
	var live []kept
	if v.Data != nil && !v.Doubtful && json.Unmarshal(v.Data, &live) != nil {
		live = nil // of another version: people log in again
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range live { // a later use may not be written yet
		if at := slices.IndexFunc(s.live, func(k kept) bool { return k.Hash == live[i].Hash }); at >= 0 && s.live[at].Seen.After(live[i].Seen) {
			live[i].Seen = s.live[at].Seen
		}
	}
	s.live, s.rev = slices.DeleteFunc(live, func(k kept) bool { return k.Rules != s.rules }), v.Rev
}

// follow takes what other relays of a cluster write, until ctx ends.
func (s *sessions) follow(ctx context.Context) {
	for {
		for v, err := range s.table.Watch(ctx, sessionsKey) {
			if err != nil {
				break
			}
			s.mu.Lock()
			news := v.Rev > s.rev
			s.mu.Unlock()
			if news {
				s.take(v)
			}
		}
		if retry.Sleep(ctx, time.Second) != nil {
			return
		}
	}
}

// change edits the sessions, which counts at once, and returns when that is durable. A crash before
// leaves the sessions as they were. An edit is repeated if another relay has written meanwhile.
func (s *sessions) change(ctx context.Context, edit func([]kept) []kept) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), writePatience)
	defer cancel()
	s.writing.Lock()
	defer s.writing.Unlock()
	var err error
	for range 3 {
		data, rev := s.edited(edit)
		rev, err = s.table.Put(ctx, sessionsKey, data, store.If{Key: sessionsKey, Rev: rev})
		if err == nil {
			s.mu.Lock()
			s.rev = rev
			s.mu.Unlock()
			return nil
		}
		if !errors.Is(err, store.ErrConflict) && !errors.Is(err, store.ErrUnknown) {
			break
		}
		if failed := s.load(ctx); failed != nil {
			return failed
		}
	}
	s.edited(edit) // what was read back may be without it
	return fmt.Errorf("write the console's sessions: %w", err)
}

func (s *sessions) edited(edit func([]kept) []kept) (data []byte, rev uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	s.live = slices.DeleteFunc(edit(s.live), func(k kept) bool { return s.over(&k, now) })
	s.wrote = now
	data, _ = json.Marshal(append([]kept{}, s.live...)) // has no values that cannot be encoded
	return data, s.rev
}

func (s *sessions) over(k *kept, now time.Time) bool {
	return !now.Before(k.Until) || now.Sub(k.Seen) >= s.idle
}

// begin makes a session. One that cannot be written, as on a full disk, lasts as long as the
// process: whoever looks for the trouble is not kept out by it.
func (s *sessions) begin(ctx context.Context, by audit.Person, role Role) (token string) {
	now := time.Now().UTC()
	token = rand.Text()
	k := kept{Session{rand.Text()[:8], by, role, now, now, now.Add(s.length)}, hashOf(token), s.rules}
	err := s.change(ctx, func(live []kept) []kept {
		live = slices.DeleteFunc(live, func(o kept) bool { return o.Hash == k.Hash }) // of an attempt before
		live = makeRoom(live, mostOfOne, func(o *kept) bool { return same(o.Person, by) })
		return append(makeRoom(live, mostSessions, func(*kept) bool { return true }), k)
	})
	if err != nil {
		s.log.Warn("a session of the console is not durable, and ends with this process", "person", by.String(), "error", err)
	}
	return token
}

// makeRoom drops the sessions that were not used for longest, until fewer than most of these are
// left.
func makeRoom(live []kept, most int, these func(*kept) bool) []kept {
	for {
		oldest, n := -1, 0
		for i := range live {
			if these(&live[i]) {
				if n++; oldest < 0 || live[i].Seen.Before(live[oldest].Seen) {
					oldest = i
				}
			}
		}
		if n < most {
			return live
		}
		live = slices.Delete(live, oldest, oldest+1)
	}
}

// same reports whether two sessions are of one person.
func same(a, b audit.Person) bool {
	return a.By == b.By && a.Host == b.Host && cmp.Or(a.Subject, a.User) == cmp.Or(b.Subject, b.User)
}

// of finds the session of a token, and notes that it is used, if it is.
func (s *sessions) of(ctx context.Context, token string, used bool) (Session, bool) {
	hash, now := hashOf(token), time.Now().UTC()
	s.mu.Lock()
	i := slices.IndexFunc(s.live, func(k kept) bool { return k.Hash == hash })
	if i < 0 || s.over(&s.live[i], now) {
		s.mu.Unlock()
		return Session{}, false
	}
	if used {
		s.live[i].Seen = now
	}
	found, due := s.live[i].Session, used && now.Sub(s.wrote) > min(seenEvery, s.idle/4)
	if due {
		s.wrote = now // the others do not wait
	}
	s.mu.Unlock()
	if due {
		if err := s.change(ctx, func(live []kept) []kept { return live }); err != nil {
			s.log.Warn("when the console's sessions were used last cannot be written; they may end early at a restart", "error", err)
		}
	}
	return found, true
}

// list gives the sessions, the newest first.
func (s *sessions) list() []Session {
	s.mu.Lock()
	defer s.mu.Unlock()
	all, now := []Session{}, time.Now()
	for i := range s.live {
		if !s.over(&s.live[i], now) {
			all = append(all, s.live[i].Session)
		}
	}
	slices.SortFunc(all, func(a, b Session) int { return b.Begun.Compare(a.Begun) })
	return all
}

// end ends the chosen sessions. They have ended in this process even if that is not durable.
func (s *sessions) end(ctx context.Context, chosen func(*kept) bool) ([]Session, error) {
	gone := map[string]Session{}
	err := s.change(ctx, func(live []kept) []kept {
		return slices.DeleteFunc(live, func(k kept) bool {
			if chosen(&k) {
				gone[k.ID] = k.Session
			}
			return chosen(&k)
		})
	})
	return slices.Collect(maps.Values(gone)), err
}

// link makes the token of a link.
func (s *sessions) link(by audit.Person) (token string, until time.Time) {
	now := time.Now()
	token, until = rand.Text(), now.Add(linkLength)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.links = slices.DeleteFunc(s.links, func(l link) bool { return !now.Before(l.until) })
	s.links = append(s.links[max(0, len(s.links)+1-mostLinks):], link{hashOf(token), by, until})
	return token, until
}

// open takes a link's token, which is then good no more.
func (s *sessions) open(token string) (by audit.Person, ok bool) {
	hash, now := hashOf(token), time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	i := slices.IndexFunc(s.links, func(l link) bool { return l.hash == hash && now.Before(l.until) })
	if i < 0 {
		return by, false
	}
	by = s.links[i].person
	s.links = slices.Delete(s.links, i, i+1)
	return by, true
}
