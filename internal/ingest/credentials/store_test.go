package credentials

import (
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/config/secret"
	"github.com/auditrelay/auditrelay/internal/store"
	"github.com/auditrelay/auditrelay/internal/store/disk"
	"github.com/auditrelay/auditrelay/internal/testbed/waiting"
)

var (
	live = Environment{"shop", "live"}
	test = Environment{"shop", "test"}
)

// folder makes a store of the test's own, and returns how to open it once more, after a
// change of its files.
func folder(t *testing.T) (dir string, reopen func(change func()) store.Table) {
	t.Helper()
	dir = t.TempDir()
	var files *disk.Store
	t.Cleanup(func() { assert.NoError(t, files.Close()) })
	return dir, func(change func()) store.Table {
		if files != nil {
			require.NoError(t, files.Close())
		}
		change()
		var err error
		files, err = disk.Open(disk.Config{Dir: dir, Salvage: t.TempDir(), Writer: "test", Logger: slog.New(slog.DiscardHandler)})
		require.NoError(t, err)
		return files.Table()
	}
}

func newTable(t *testing.T) store.Table {
	t.Helper()
	_, reopen := folder(t)
	return reopen(func() {})
}

func open(t *testing.T, table store.Table, change ...func(*Options)) *Store {
	t.Helper()
	o := Options{Overlap: 15 * time.Minute, Environments: []config.Environment{
		{Project: live.Project, Environment: live.Environment},
		{Project: test.Project, Environment: test.Environment},
	}}
	for _, c := range change {
		c(&o)
	}
	s, err := Open(t.Context(), table, o)
	require.NoError(t, err)
	t.Cleanup(s.Close)
	return s
}

func accepts(s *Store, i Issued) bool {
	env, ok := s.Basic(i.Username, i.Password.Reveal())
	return ok && env == live
}

func state(t *testing.T, s *Store) State {
	t.Helper()
	st, err := s.State(live)
	require.NoError(t, err)
	return st
}

func TestRotation(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s := open(t, newTable(t))
	assert.Equal(t, State{Username: live.Username()}, state(t, s))

	first, err := s.Prepare(ctx, live)
	require.NoError(t, err)
	assert.True(t, accepts(s, first), "a push may come before the mark")
	assert.Equal(t, first.LastFour, state(t, s).Pending)
	assert.True(t, strings.HasSuffix(first.Password.Reveal(), first.LastFour))
	assert.Len(t, first.Password.Reveal(), 43)

	require.NoError(t, s.Promote(ctx, live, first.LastFour))
	require.NoError(t, s.Promote(ctx, live, first.LastFour), "twice is no harm")
	made := state(t, s).Made
	assert.Less(t, time.Since(made), time.Hour)
	assert.Equal(t, State{Username: live.Username(), Current: first.LastFour, Made: made}, state(t, s))

	second, err := s.Prepare(ctx, live)
	require.NoError(t, err)
	assert.True(t, accepts(s, first) && accepts(s, second))
	require.NoError(t, s.Promote(ctx, live, second.LastFour))
	assert.True(t, accepts(s, first), "the overlap")
	assert.True(t, state(t, s).Made.After(made))
	made = state(t, s).Made
	assert.Equal(t, State{Username: live.Username(), Current: second.LastFour, Made: made, Replaced: []string{first.LastFour}}, state(t, s))

	require.NoError(t, s.Promote(ctx, live, first.LastFour), "the API may show the replaced one after all")
	assert.Equal(t, first.LastFour, state(t, s).Current)
	assert.Equal(t, []string{second.LastFour}, state(t, s).Replaced)
	require.ErrorIs(t, s.Promote(ctx, live, "????"), ErrUnknown)
}

func TestPreparingAgainKeepsWhatMayHaveReachedTheAPI(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s := open(t, newTable(t))
	lost, err := s.Prepare(ctx, live)
	require.NoError(t, err)
	next, err := s.Prepare(ctx, live)
	require.NoError(t, err)
	assert.True(t, accepts(s, lost) && accepts(s, next))
	require.NoError(t, s.Promote(ctx, live, lost.LastFour))
	assert.Equal(t, next.LastFour, state(t, s).Pending)

	require.NoError(t, s.Drop(ctx, live, "????"))
	assert.Equal(t, next.LastFour, state(t, s).Pending, "that was another")
	require.NoError(t, s.Drop(ctx, live, next.LastFour))
	assert.Empty(t, state(t, s).Pending)
	assert.True(t, accepts(s, next), "its PUT may be on its way")
}

func TestExpiryGoesByTheClock(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s := open(t, newTable(t), func(o *Options) { o.Overlap = 150 * time.Millisecond })
	first, err := s.Prepare(ctx, live)
	require.NoError(t, err)
	require.NoError(t, s.Promote(ctx, live, first.LastFour))
	second, err := s.Prepare(ctx, live)
	require.NoError(t, err)
	require.NoError(t, s.Promote(ctx, live, second.LastFour))
	waiting.Until(t, func() bool { return !accepts(s, first) })
	assert.True(t, accepts(s, second))
	assert.Empty(t, state(t, s).Replaced)
	require.ErrorIs(t, s.Promote(ctx, live, first.LastFour), ErrUnknown, "an expired one does not come back")
	require.NoError(t, s.Drop(ctx, live, ""))
	third, err := s.Prepare(ctx, live)
	require.NoError(t, err)
	require.NotEqual(t, second.LastFour, third.LastFour)
	r, err := s.known(live)
	require.NoError(t, err)
	assert.Len(t, r.Passwords, 2, "pruned")
}

func TestOnlyHashesAreKept(t *testing.T) {
	t.Parallel()
	table := newTable(t)
	s := open(t, table)
	issued, err := s.Prepare(t.Context(), live)
	require.NoError(t, err)
	kept, err := table.Get(t.Context(), prefix+live.Username())
	require.NoError(t, err)
	assert.Contains(t, string(kept.Data), issued.LastFour)
	assert.NotContains(t, string(kept.Data), issued.Password.Reveal()[:38])
	assert.NotContains(t, fmt.Sprintf("%v %+v %#v", issued, issued, issued), issued.Password.Reveal())
}

func TestRestartAndNeighbours(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	table := newTable(t)
	a := open(t, table)
	before, err := a.Prepare(ctx, live)
	require.NoError(t, err)

	b := open(t, table)
	assert.True(t, accepts(b, before), "known when Open returns")
	after, err := a.Prepare(ctx, live)
	require.NoError(t, err)
	waiting.Until(t, func() bool { return accepts(b, after) })

	other := open(t, table, func(o *Options) { o.Environments = o.Environments[1:] })
	assert.False(t, accepts(other, after), "an environment taken out of the config is refused")
	_, err = other.Prepare(ctx, live)
	require.ErrorIs(t, err, ErrNotConfigured)
}

func TestConcurrentRelaysLoseNothing(t *testing.T) {
	t.Parallel()
	table := newTable(t)
	stores := []*Store{open(t, table), open(t, table), open(t, table)}
	issued := make([]Issued, 9)
	var wg sync.WaitGroup
	for i := range issued {
		wg.Go(func() {
			var err error
			issued[i], err = stores[i%3].Prepare(t.Context(), live)
			assert.NoError(t, err)
		})
	}
	wg.Wait()
	for _, s := range stores {
		for _, i := range issued {
			waiting.Until(t, func() bool { return accepts(s, i) })
		}
	}
}

func TestAnOlderRevisionChangesNothing(t *testing.T) {
	t.Parallel()
	s := open(t, newTable(t))
	_, err := s.Prepare(t.Context(), live)
	require.NoError(t, err)
	older, err := s.known(live)
	require.NoError(t, err)
	newest, err := s.Prepare(t.Context(), live)
	require.NoError(t, err)
	s.apply(live.Username(), older, false) // the watch lags our own update
	assert.True(t, accepts(s, newest))
}

func TestListAndRevoke(t *testing.T) {
	t.Parallel()
	table := newTable(t)
	s := open(t, table, func(o *Options) {
		o.Environments[1].Credentials = []config.Credential{{Username: "u", Password: secret.New("hunter2-of-some-length")}}
	})
	var all []Issued
	for range 3 {
		issued, err := s.Prepare(t.Context(), live)
		require.NoError(t, err)
		require.NoError(t, s.Promote(t.Context(), live, issued.LastFour))
		all = append(all, issued)
	}
	require.True(t, accepts(s, all[0]))
	list := s.List()
	require.Len(t, list, 4)
	assert.Equal(t, [2]string{StateCurrent, all[2].LastFour}, [2]string{list[0].State, list[0].LastFour})
	assert.Equal(t, [2]string{StateReplaced, all[0].LastFour}, [2]string{list[2].State, list[2].LastFour})
	assert.False(t, list[2].Until.IsZero())
	assert.False(t, list[2].LastUsed.IsZero(), "also where others were made since")
	assert.True(t, list[1].LastUsed.IsZero())
	assert.Equal(t, Listed{Project: "shop", Environment: "test", Kind: KindStatic, Username: "u", LastFour: "ngth"}, list[3])

	require.NoError(t, s.Revoke(t.Context(), live, all[0].LastFour))
	assert.False(t, accepts(s, all[0]))
	assert.True(t, accepts(s, all[1]))
	require.NoError(t, s.Revoke(t.Context(), live, all[2].LastFour))
	require.ErrorIs(t, s.Revoke(t.Context(), live, all[2].LastFour), ErrUnknown)
	again := open(t, table)
	assert.False(t, accepts(again, all[2]), "it is durable")
	assert.True(t, accepts(again, all[1]))
}

// An overlap of 0 refuses the replaced credential at once.
func TestWithoutAnOverlap(t *testing.T) {
	t.Parallel()
	s := open(t, newTable(t), func(o *Options) { o.Overlap = 0 })
	rotate := func() Issued {
		issued, err := s.Prepare(t.Context(), live)
		require.NoError(t, err)
		require.NoError(t, s.Promote(t.Context(), live, issued.LastFour))
		return issued
	}
	first := rotate()
	require.True(t, accepts(s, first))
	second := rotate()
	assert.False(t, accepts(s, first))
	assert.True(t, accepts(s, second))
	assert.Empty(t, state(t, s).Replaced)
}

func TestStaticCredentials(t *testing.T) {
	t.Parallel()
	s := open(t, newTable(t), func(o *Options) {
		o.Environments[0].Credentials = []config.Credential{
			{Username: "u", Password: secret.New("p")}, {APIKey: secret.New("k")}, {Username: "u", Password: secret.New("p2")},
		}
		o.Environments[1].Credentials = []config.Credential{{Username: "u2", Password: secret.New("p")}}
	})
	for _, tc := range []struct {
		user, password string
		want           Environment
	}{
		{"u", "p", live},
		{"u", "p2", live},
		{"u2", "p", test},
		{"u", "p3", Environment{}},
		{"u", "", Environment{}},
		{"", "", Environment{}},
		{"", "k", Environment{}},
		{"up", "", Environment{}},
		{strings.Repeat("u", 1000), strings.Repeat("p", 1000), Environment{}},
	} {
		env, ok := s.Basic(tc.user, tc.password)
		assert.Equal(t, tc.want, env, "%q %q", tc.user, tc.password)
		assert.Equal(t, tc.want != Environment{}, ok)
	}
	env, ok := s.APIKey("k")
	assert.True(t, ok && env == live)
	for _, key := range []string{"", "p", "k "} {
		_, ok = s.APIKey(key)
		assert.False(t, ok, "%q", key)
	}
}

func TestStaticCredentialOfTwoEnvironmentsIsRefused(t *testing.T) {
	t.Parallel()
	same := []config.Credential{{APIKey: secret.New("shared-key-0123")}}
	_, err := Open(t.Context(), nil, Options{Environments: []config.Environment{
		{Project: "a", Environment: "x", Credentials: same}, {Project: "b", Environment: "y", Credentials: same},
	}})
	require.ErrorContains(t, err, "b/y is one of a/x too")
	assert.NotContains(t, err.Error(), "shared")
}

func TestUsernamesNeverCollide(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 50)
	seen := map[string]Environment{}
	for _, env := range []Environment{
		{"a.b", "c"},
		{"a", "b.c"},
		{"a_b", "c"},
		{"a", "b"},
		{"ab", ""},
		{"", "ab"},
		{"a b", "c"},
		{long, "c"},
		{long + "y", "c"},
		{"ä", "c"},
		{"A", "B"},
		{`a" "b`, "c"},
		{"a", `b" "c`},
	} {
		name := env.Username()
		other, taken := seen[name]
		assert.False(t, taken, "%v and %v", env, other)
		seen[name] = env
		assert.Regexp(t, `^[A-Za-z0-9_-]*\.[A-Za-z0-9_-]*\.[0-9a-f]{12}$`, name)
		assert.LessOrEqual(t, len(name), 100)
	}
	assert.Equal(t, "shop.live.", live.Username()[:10], "readable")
}

func TestChecksAllocateNothing(t *testing.T) {
	s := open(t, newTable(t), func(o *Options) {
		o.Environments[0].Credentials = []config.Credential{{APIKey: secret.New("k")}}
	})
	issued, err := s.Prepare(t.Context(), live)
	require.NoError(t, err)
	password := issued.Password.Reveal()
	assert.Zero(t, testing.AllocsPerRun(100, func() { s.Basic(issued.Username, password) }))
	assert.Zero(t, testing.AllocsPerRun(100, func() { s.APIKey("k") }))
}

func BenchmarkBasic(b *testing.B) {
	ix := newIndex()
	ix.grants[ix.id(kindBasic, sum("user"), sum("password"))] = grant{environment: live, uses: new(uses)}
	b.ReportAllocs()
	for b.Loop() {
		ix.find(kindBasic, sum("user"), sum("password"), false)
	}
}
