package credentials

import (
	"context"
	"iter"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/internal/store"
)

// files are the two files of the table's durable values.
var files = []string{"values.a", "values.b"}

// copyOf keeps both as they are now, and returns a function that puts them back.
func copyOf(t *testing.T, dir string) (putBack func()) {
	t.Helper()
	kept := map[string][]byte{}
	for _, name := range files {
		var err error
		kept[name], err = os.ReadFile(filepath.Join(dir, name))
		require.NoError(t, err)
	}
	return func() {
		for name, b := range kept {
			require.NoError(t, os.WriteFile(filepath.Join(dir, name), b, 0o600))
		}
	}
}

// tells collects the damage.
func tells(told *[]Damage) func(*Options) {
	return func(o *Options) { o.Damaged = func(d Damage) { *told = append(*told, d) } }
}

// Where the table lost values, the older record that is left is told, and accepted: good
// pushes come first. It is told at each start until the report is durable.
func TestAnOlderRecordIsTold(t *testing.T) {
	t.Parallel()
	dir, reopen := folder(t)
	s := open(t, reopen(func() {}))
	first, err := s.Prepare(t.Context(), live)
	require.NoError(t, err)
	older := copyOf(t, dir)
	_, err = s.Prepare(t.Context(), live)
	require.NoError(t, err)
	for start := range 3 {
		var told []Damage
		s = open(t, reopen(func() {
			if start == 0 {
				older()
			}
		}), tells(&told))
		require.True(t, accepts(s, first), "good pushes are refused")
		if start == 2 {
			require.Empty(t, told)
			break
		}
		require.Len(t, told, 2, "test may have had a record")
		for _, d := range told {
			assert.Equal(t, d.Environment == test, d.Lost)
			assert.Contains(t, d.Problem, map[bool]string{false: "may be an older one", true: "perhaps with the record"}[d.Lost])
			if start == 1 {
				require.NoError(t, s.Reported(t.Context(), d.Environment))
				require.NoError(t, s.Reported(t.Context(), d.Environment), "twice is no harm")
			}
		}
	}
}

// An older copy of the table's files would make a revoked password valid again.
func TestARevokedPasswordThatComesBackIsTold(t *testing.T) {
	t.Parallel()
	dir, reopen := folder(t)
	s := open(t, reopen(func() {}))
	issued, err := s.Prepare(t.Context(), live)
	require.NoError(t, err)
	older := copyOf(t, dir)
	require.NoError(t, s.Revoke(t.Context(), live, issued.LastFour))
	var told []Damage
	s = open(t, reopen(older), tells(&told))
	require.True(t, accepts(s, issued))
	require.Len(t, told, 2)
	require.NoError(t, s.Revoke(t.Context(), live, issued.LastFour))
	told = nil
	s = open(t, reopen(func() {}), tells(&told))
	require.False(t, accepts(s, issued))
	require.Len(t, told, 1, "the change ended the doubt about live")
	require.Equal(t, test, told[0].Environment)
}

// With one of the files damaged nothing is lost, and nothing is told.
func TestOneDamagedFileCostsNothing(t *testing.T) {
	t.Parallel()
	dir, reopen := folder(t)
	s := open(t, reopen(func() {}))
	issued, err := s.Prepare(t.Context(), live)
	require.NoError(t, err)
	for _, name := range files {
		var told []Damage
		s = open(t, reopen(func() {
			require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte("nothing of use"), 0o600))
		}), tells(&told))
		require.True(t, accepts(s, issued))
		require.Empty(t, told)
	}
}

// A record that cannot be decoded is told, and passes for no empty one: what is known is
// accepted, and the next change writes over it.
func TestAnUnreadableRecordIsToldAndWrittenOver(t *testing.T) {
	t.Parallel()
	table, told := newTable(t), make(chan Damage, 10)
	s := open(t, table, func(o *Options) { o.Damaged = func(d Damage) { told <- d } })
	known, err := s.Prepare(t.Context(), live)
	require.NoError(t, err)
	_, err = table.Put(t.Context(), prefix+live.Username(), []byte(`{"version":2}`), store.If{})
	require.NoError(t, err)
	d := <-told
	require.Equal(t, live, d.Environment)
	require.True(t, d.Lost)
	require.Contains(t, d.Problem, "version 2 is not known")
	require.True(t, accepts(s, known))

	var again []Damage
	other := open(t, table, tells(&again))
	require.Len(t, again, 1, "told once in a start")
	require.False(t, accepts(other, known))
	next, err := s.Prepare(t.Context(), live)
	require.NoError(t, err)
	require.True(t, accepts(s, next) && accepts(s, known))
	s = open(t, table)
	require.True(t, accepts(s, next) && accepts(s, known))
}

func FuzzRecord(f *testing.F) {
	f.Add([]byte(`{"version":1,"project":"p","environment":"e","passwords":[{"state":"current","hash":"` + strings.Repeat("ab", 32) + `","last_four":"abcd"}]}`))
	f.Add([]byte(`{"version":2}`))
	f.Add([]byte(`{"version":1,"passwords":[{"hash":"00"}]}`))
	f.Fuzz(func(t *testing.T, value []byte) {
		r, err := decodeRecord(value)
		if err != nil {
			return
		}
		r.prune(time.Now())
		count := func(state string) (n int) {
			for _, h := range r.Passwords {
				if h.State == state {
					n++
				}
			}
			return n
		}
		require.LessOrEqual(t, count(StateReplaced), maxReplaced)
		newIndex().addRecord(live.Username(), &r, false, newIndex())
		if len(r.Passwords) > 0 && count(StateCurrent) < 2 {
			chosen := r.Passwords[0].Hash
			r.promote(0, time.Now())
			require.Equal(t, 1, count(StateCurrent))
			require.Equal(t, chosen, r.Passwords[len(r.Passwords)-1].Hash)
		}
	})
}

// forgetful is a table that lost its newest values while it was in use, as a cluster may.
type forgetful struct {
	store.Table
	lost bool
}

func (f *forgetful) Get(ctx context.Context, key string) (store.Value, error) {
	v, err := f.Table.Get(ctx, key)
	if f.lost {
		v.Data, v.Doubtful = nil, true
	}
	return v, err
}

func (f *forgetful) Watch(ctx context.Context, _ string) iter.Seq2[store.Value, error] {
	return func(yield func(store.Value, error) bool) {
		<-ctx.Done()
		yield(store.Value{}, ctx.Err())
	}
}

// A record that was perhaps lost is not taken for one that is not there: a change keeps the
// passwords that this relay knows.
func TestAChangeAfterALossKeepsWhatIsKnown(t *testing.T) {
	t.Parallel()
	table := &forgetful{Table: newTable(t)}
	s := open(t, table)
	known, err := s.Prepare(t.Context(), live)
	require.NoError(t, err)
	require.NoError(t, s.Promote(t.Context(), live, known.LastFour))
	_, err = table.Put(t.Context(), prefix+live.Username(), nil, store.If{})
	require.NoError(t, err)
	table.lost = true
	next, err := s.Prepare(t.Context(), live)
	require.NoError(t, err)
	table.lost = false
	for _, relay := range []*Store{s, open(t, table)} {
		require.True(t, accepts(relay, known))
		require.True(t, accepts(relay, next))
	}
}
