package access

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/internal/store"
	"github.com/auditrelay/auditrelay/internal/trail/audit"
)

func newSessions(t *testing.T, table store.Table) *sessions {
	t.Helper()
	s := &sessions{table: table, length: 8 * time.Hour, idle: time.Hour, log: slog.New(slog.DiscardHandler)}
	require.NoError(t, s.load(t.Context()))
	return s
}

func person(name string) audit.Person {
	return audit.Person{User: name, Host: "login.example.com", By: audit.ByOIDC}
}

// memory is a table in memory, since time stands still while a bubble waits for a disk. The store's
// own table is used in the other tests.
type memory struct {
	store.Table
	value  store.Value
	failed error
	puts   int
}

func (m *memory) Get(context.Context, string) (store.Value, error) { return m.value, nil }

func (m *memory) Put(_ context.Context, key string, data []byte, c store.If) (uint64, error) {
	m.puts++
	if m.failed != nil {
		return 0, m.failed
	}
	if c.Rev != m.value.Rev {
		return 0, store.ErrConflict
	}
	m.value = store.Value{Key: key, Rev: c.Rev + 1, Data: data}
	return m.value.Rev, nil
}

func TestASessionEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		table := &memory{}
		s := newSessions(t, table)
		idle, used := s.begin(t.Context(), person("ann"), Viewer), s.begin(t.Context(), person("bob"), Operator)
		streamed := s.begin(t.Context(), person("eve"), Viewer)
		for i := range 15 {
			time.Sleep(30 * time.Minute)
			_, in := s.of(t.Context(), streamed, false)
			require.Equal(t, i == 0, in, "a stream alone keeps a session")
			_, in = s.of(t.Context(), used, true)
			require.True(t, in, "a session that is used has ended")
		}
		assert.LessOrEqual(t, table.puts, 20, "each use is written")
		_, in := s.of(t.Context(), idle, true)
		assert.False(t, in, "a session that nobody uses goes on")
		assert.Len(t, s.list(), 1)
		s = newSessions(t, table)
		_, in = s.of(t.Context(), used, true)
		assert.True(t, in, "the last use was not written")
		time.Sleep(30 * time.Minute)
		_, in = s.of(t.Context(), used, true)
		assert.False(t, in, "a session goes on for ever")
		assert.Empty(t, s.list())

		old, _ := s.link(person("ann"))
		time.Sleep(linkLength)
		_, ok := s.open(old)
		assert.False(t, ok, "an old link is good")
		fresh, _ := s.link(person("ann"))
		_, ok = s.open(fresh)
		assert.True(t, ok)
		_, ok = s.open(fresh)
		assert.False(t, ok, "a link is good twice")
		for range 3 * mostLinks {
			s.link(person("ann"))
		}
		assert.LessOrEqual(t, len(s.links), mostLinks)
	})
}

func TestSessionsAreBounded(t *testing.T) {
	t.Parallel()
	table, _ := newTable(t, t.TempDir())
	s := newSessions(t, table)
	kept := s.begin(t.Context(), person("ann"), Viewer)
	for range 2 * mostOfOne {
		s.begin(t.Context(), person("bob"), Viewer)
	}
	assert.Len(t, s.list(), mostOfOne+1, "one person takes the others' room")
	_, in := s.of(t.Context(), kept, true)
	assert.True(t, in)
	for i := range mostSessions {
		s.begin(t.Context(), person(fmt.Sprint(i)+strings.Repeat("x", longestName)), Viewer)
	}
	assert.Len(t, s.list(), mostSessions)
	v, err := table.Get(t.Context(), sessionsKey)
	require.NoError(t, err)
	assert.Less(t, len(v.Data), 200<<10)
}

// Of many who open a link at once, one is let in.
func TestALinkThatManyOpenAtOnce(t *testing.T) {
	t.Parallel()
	s := newSessions(t, &memory{})
	for range 100 {
		token, _ := s.link(person("ann"))
		var in atomic.Int64
		var opening sync.WaitGroup
		for range 8 {
			opening.Go(func() {
				if _, ok := s.open(token); ok {
					in.Add(1)
				}
			})
		}
		opening.Wait()
		require.EqualValues(t, 1, in.Load())
	}
}

// Neither a token nor anything that it can be made from is on the disk.
func TestTokensAreNotKept(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	table, closed := newTable(t, dir)
	s := newSessions(t, table)
	token := s.begin(t.Context(), person("ann"), Operator)
	closed()
	found := 0
	require.NoError(t, filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		assert.NotContains(t, string(data), token)
		if strings.Contains(string(data), hashOf(token)) {
			found++
		}
		return err
	}))
	assert.Positive(t, found, "nothing is kept")
	table, _ = newTable(t, dir)
	again := newSessions(t, table)
	session, in := again.of(t.Context(), token, true)
	assert.True(t, in, "a session does not outlast a restart")
	assert.Equal(t, person("ann"), session.Person)
	assert.Equal(t, Operator, session.Role)
}

// What was ended stays ended: after a restart, for another relay, and where the table lost its newest
// values.
func TestRevokedSessions(t *testing.T) {
	t.Parallel()
	table := &memory{}
	s := newSessions(t, table)
	token := s.begin(t.Context(), person("ann"), Viewer)
	other := s.begin(t.Context(), person("bob"), Viewer)
	standby := newSessions(t, table)
	before := table.value
	id := s.list()[1].ID
	ended, err := s.end(t.Context(), func(k *kept) bool { return k.ID == id })
	require.NoError(t, err)
	require.Len(t, ended, 1)
	gone := ended[0].Person.User
	for _, s := range []*sessions{s, newSessions(t, table)} {
		require.Len(t, s.list(), 1)
		assert.NotEqual(t, gone, s.list()[0].Person.User)
	}
	// The other one writes what it knows: the revoked session does not come back.
	standby.begin(t.Context(), person("eve"), Viewer)
	for _, s := range standby.list() {
		assert.NotEqual(t, gone, s.Person.User)
	}
	assert.Len(t, standby.list(), 2)

	before.Doubtful = true
	table.value = before
	assert.Empty(t, newSessions(t, table).list(), "an older value has sessions that were revoked since")
	_, _ = token, other
}

// On a full disk people still get in, and a revocation counts at once, though it says that it will not last.
func TestATableThatCannotBeWritten(t *testing.T) {
	t.Parallel()
	table := &memory{failed: store.ErrFull}
	s := newSessions(t, table)
	token := s.begin(t.Context(), person("ann"), Operator)
	_, in := s.of(t.Context(), token, true)
	assert.True(t, in)
	_, err := s.end(t.Context(), func(*kept) bool { return true })
	require.ErrorIs(t, err, store.ErrFull)
	_, in = s.of(t.Context(), token, true)
	assert.False(t, in)

	table.failed = errors.New("anything")
	table.value = store.Value{Data: []byte("{"), Rev: 3}
	require.NoError(t, s.load(t.Context()))
	assert.Empty(t, s.list())
}

// A cluster may not say whether it has taken a write, while what it has can be read.
func TestAWriteOfUnknownOutcome(t *testing.T) {
	t.Parallel()
	table := &memory{}
	s := newSessions(t, table)
	token := s.begin(t.Context(), person("ann"), Operator)
	table.failed = store.ErrUnknown
	_, err := s.end(t.Context(), func(*kept) bool { return true })
	require.ErrorIs(t, err, store.ErrUnknown)
	_, in := s.of(t.Context(), token, true)
	assert.False(t, in, "whoever was logged out is in again")
	assert.Empty(t, s.list())

	token = s.begin(t.Context(), person("bob"), Viewer)
	_, in = s.of(t.Context(), token, true)
	assert.True(t, in, "whoever has logged in is out again")
}
