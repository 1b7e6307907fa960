package credentials

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestDamagedRecordIsWrittenOver(t *testing.T) {
	t.Parallel()
	js := connect(t)
	s := open(t, js)
	kv, err := js.KeyValue(t.Context(), "AUDITRELAY_credentials")
	require.NoError(t, err)
	_, err = kv.Put(t.Context(), live.Username(), []byte("{"))
	require.NoError(t, err)
	issued, err := s.Prepare(t.Context(), live)
	require.NoError(t, err)
	assert.True(t, accepts(s, issued))
	assert.True(t, accepts(open(t, js), issued))
}

func FuzzRecord(f *testing.F) {
	f.Add([]byte(`{"version":1,"project":"p","environment":"e","current":{"hash":"` + strings.Repeat("ab", 32) + `","last_four":"abcd"}}`))
	f.Add([]byte(`{"version":2}`))
	f.Add([]byte(`{"version":1,"replaced":[{"hash":"00"}]}`))
	f.Fuzz(func(t *testing.T, value []byte) {
		r, err := decodeRecord(value)
		if err != nil {
			return
		}
		r.prune(time.Now())
		require.LessOrEqual(t, len(r.Replaced), maxReplaced)
		newIndex().addRecord(live, &r, newIndex())
		for h := range r.all {
			require.True(t, r.promote(h.LastFour, time.Now()))
			require.Equal(t, h.LastFour, r.Current.LastFour)
			break
		}
	})
}

// A record damaged, gone or older in the bucket is put back from its copy, and reported
// once. The environment's password is accepted throughout.
func TestADamagedRecordIsPutBack(t *testing.T) {
	t.Parallel()
	for name, spoil := range spoiled {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			js, dir := connect(t), t.TempDir()
			var told []Damage
			keeps := func(o *Options) { o.Dir = dir; o.Damaged = func(d Damage) { told = append(told, d) } }
			s := open(t, js, keeps)
			issued, err := s.Prepare(t.Context(), live)
			require.NoError(t, err)
			require.NoError(t, s.Promote(t.Context(), live, issued.LastFour))
			s.Close()
			spoil(t, js, live.Username())
			for range 2 {
				s = open(t, js, keeps)
				require.True(t, accepts(s, issued), "good pushes are refused")
				s.Close()
			}
			require.Len(t, told, 1)
			require.False(t, told[0].Lost)
			next, err := open(t, js, keeps).Prepare(t.Context(), live)
			require.NoError(t, err, "it can be rotated")
			require.NotEmpty(t, next.LastFour)
		})
	}
}

// A record is damaged under a running relay: the known one stands, and is written back.
func TestARecordDamagedWhileRunningIsPutBack(t *testing.T) {
	t.Parallel()
	js, told := connect(t), make(chan Damage, 10)
	s := open(t, js, func(o *Options) { o.Dir = t.TempDir(); o.Damaged = func(d Damage) { told <- d } })
	issued, err := s.Prepare(t.Context(), live)
	require.NoError(t, err)
	spoiled["not JSON"](t, js, live.Username())
	require.False(t, (<-told).Lost)
	require.True(t, accepts(s, issued))
	require.True(t, accepts(open(t, js), issued), "the bucket has it again")
}

// The bucket has a revision unseen by the watch: an older record gives way to the copy,
// and a newer one, of another relay, is accepted at once.
func TestTheBucketDecidesWhereItsRevisionIsAnother(t *testing.T) {
	t.Parallel()
	js := connect(t)
	s := open(t, js, func(o *Options) { o.Dir = t.TempDir() })
	kv, err := js.KeyValue(t.Context(), "AUDITRELAY_credentials")
	require.NoError(t, err)
	_, err = s.Prepare(t.Context(), live)
	require.NoError(t, err)
	older, err := kv.Get(t.Context(), live.Username())
	require.NoError(t, err)
	newest, err := s.Prepare(t.Context(), live)
	require.NoError(t, err)
	s.Close() // so only putBack brings changes
	_, err = kv.Put(t.Context(), live.Username(), older.Value())
	require.NoError(t, err)
	copied, err := s.copies.read(live.Username())
	require.NoError(t, err)
	const seen = 0 // the revision: none
	require.NoError(t, s.putBack(t.Context(), live, copied, seen, nil))
	require.True(t, accepts(open(t, js), newest), "the bucket has the newest again")

	others, err := open(t, js).Prepare(t.Context(), live)
	require.NoError(t, err)
	require.False(t, accepts(s, others))
	require.NoError(t, s.putBack(t.Context(), live, copied, seen, nil))
	require.True(t, accepts(s, others))
	require.True(t, accepts(open(t, js), others), "and stays")
}

// With no sound record in the bucket or the folder, the relay reports a loss.
func TestARecordWithoutACopyIsTold(t *testing.T) {
	t.Parallel()
	js, dir := connect(t), t.TempDir()
	var told []Damage
	keeps := func(o *Options) { o.Dir = dir; o.Damaged = func(d Damage) { told = append(told, d) } }
	s := open(t, js, keeps)
	_, err := s.Prepare(t.Context(), live)
	require.NoError(t, err)
	s.Close()
	spoiled["not JSON"](t, js, live.Username())
	path := filepath.Join(dir, live.Username()+".json")
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	data[len(data)/2] ^= 1
	require.NoError(t, os.WriteFile(path, data, 0o600))
	s = open(t, js, keeps)
	require.Len(t, told, 1)
	require.True(t, told[0].Lost)
	state, err := s.State(live)
	require.NoError(t, err)
	require.Empty(t, state.Current, "so streaming sets a new one at its first look")
	issued, err := s.Prepare(t.Context(), live)
	require.NoError(t, err)
	require.True(t, accepts(s, issued))
}

// A deliberately removed record does not come back from its copy.
func TestATakenAwayRecordStaysAway(t *testing.T) {
	t.Parallel()
	js, dir := connect(t), t.TempDir()
	keeps := func(o *Options) { o.Dir = dir }
	s := open(t, js, keeps)
	issued, err := s.Prepare(t.Context(), live)
	require.NoError(t, err)
	s.Close()
	kv, err := js.KeyValue(t.Context(), "AUDITRELAY_credentials")
	require.NoError(t, err)
	require.NoError(t, kv.Delete(t.Context(), live.Username()))
	for range 2 {
		s = open(t, js, keeps)
		require.False(t, accepts(s, issued))
		s.Close()
	}
}
