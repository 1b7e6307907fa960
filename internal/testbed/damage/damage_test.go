package damage_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/internal/store"
	"github.com/auditrelay/auditrelay/internal/store/disk"
	"github.com/auditrelay/auditrelay/internal/testbed/damage"
)

// made is a store with a hundred records in several segments, and some values.
func made(t *testing.T) (dataDir string) {
	t.Helper()
	dir := t.TempDir()
	s := open(t, dir)
	l, err := s.Log(t.Context(), "events", store.Options{MaxBytes: 8 << 20})
	require.NoError(t, err)
	for i := range 100 {
		_, err := l.Append(t.Context(), store.Draft{Key: fmt.Sprint(i), Data: bytes.Repeat([]byte{byte(i + 1)}, 10_000)})
		require.NoError(t, err)
	}
	for _, key := range []string{"position/a", "position/b"} {
		require.NoError(t, s.Table().PutLazy(t.Context(), key, []byte("of "+key), store.If{}))
	}
	_, err = s.Table().Put(t.Context(), "sink/a", []byte("{}"), store.If{})
	require.NoError(t, err)
	require.NoError(t, s.Close())
	return dir
}

func open(t *testing.T, dir string) *disk.Store {
	t.Helper()
	s, err := disk.Open(disk.Config{Dir: filepath.Join(dir, "store"), Salvage: filepath.Join(dir, "salvage"), Writer: "test", Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	return s
}

// gaps are the positions that a store cannot give after a start.
func gaps(t *testing.T, dir string) (all []store.Pos) {
	t.Helper()
	s := open(t, dir)
	l, err := s.Log(t.Context(), "events", store.Options{MaxBytes: 8 << 20})
	require.NoError(t, err)
	for gap, err := range l.Scrub(t.Context()) {
		require.NoError(t, err)
		for pos := gap.From; pos <= gap.To; pos++ {
			all = append(all, pos)
		}
	}
	require.NoError(t, s.Close())
	return all
}

func positions(places ...damage.Place) (all []store.Pos) {
	for _, p := range places {
		all = append(all, p.Pos)
	}
	return all
}

func TestTheFaultsAreWhatTheySay(t *testing.T) {
	t.Parallel()
	for name, harm := range map[string]func(t *testing.T, s damage.Store) []store.Pos{
		"a record rots": func(t *testing.T, s damage.Store) []store.Pos {
			at, err := s.FlipRecord("events", 41)
			require.NoError(t, err)
			assert.Equal(t, "41", at.Key)
			return positions(at)
		},
		"the end is lost": func(t *testing.T, s damage.Store) []store.Pos {
			lost, err := s.LoseTail("events", 3)
			require.NoError(t, err)
			return positions(lost...)
		},
		"a page is zeros": func(t *testing.T, s damage.Store) []store.Pos {
			all, err := s.Records("events")
			require.NoError(t, err)
			at := all[7]
			hit, err := s.Hit("events", damage.Record, at.File, (at.Offset+5000)/4096*4096, 4096)
			require.NoError(t, err)
			require.NoError(t, damage.ZeroPage(at.File, at.Offset+5000))
			return positions(hit...)
		},
		"a segment is removed": func(t *testing.T, s damage.Store) []store.Pos {
			segments, err := s.Segments("events")
			require.NoError(t, err)
			require.Greater(t, len(segments), 3)
			hit, err := s.Hit("events", damage.Record, segments[1], 0, 1<<40)
			require.NoError(t, err)
			require.NoError(t, os.Remove(segments[1]))
			return positions(hit...)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := made(t)
			require.Empty(t, gaps(t, dir))
			want := harm(t, damage.Of(dir))
			require.NotEmpty(t, want)
			assert.Equal(t, want, gaps(t, dir))
		})
	}
}

func TestValuesAreHarmed(t *testing.T) {
	t.Parallel()
	dir := made(t)
	value := func(key string) string {
		s := open(t, dir)
		v, err := s.Table().Get(t.Context(), key)
		require.NoError(t, err)
		require.NoError(t, s.Close())
		return string(v.Data)
	}
	require.Equal(t, "{}", value("sink/a"))
	require.NoError(t, damage.Of(dir).FlipValue("sink/a"))
	assert.Empty(t, value("sink/a"))
	require.NoError(t, damage.Of(dir).CopyValue("position/a", "position/b"))
	assert.Equal(t, "of position/a", value("position/a"))
	assert.Empty(t, value("position/b"), "a value names its key")
}

func TestARandomFaultHarmsOneFile(t *testing.T) {
	t.Parallel()
	dir := made(t)
	ways := map[string]bool{}
	for seed := range uint64(60) {
		copied := t.TempDir()
		require.NoError(t, os.CopyFS(copied, os.DirFS(dir)))
		about, err := damage.Of(copied).Random(rand.New(rand.NewPCG(seed, 0)), damage.Of(dir))
		require.NoError(t, err, about)
		ways[about] = true
		again := t.TempDir()
		require.NoError(t, os.CopyFS(again, os.DirFS(dir)))
		same, err := damage.Of(again).Random(rand.New(rand.NewPCG(seed, 0)), damage.Of(dir))
		require.NoError(t, err)
		require.Equal(t, about, same, "a seed draws the same fault again")
	}
	assert.Greater(t, len(ways), 20)
}

func TestAForgerLeavesGoodRecords(t *testing.T) {
	t.Parallel()
	dir := made(t)
	s := damage.Of(dir)
	before, err := s.Drafts(t.Context(), "events")
	require.NoError(t, err)
	require.Len(t, before, 100)
	require.NoError(t, s.Forge("events", 41, func(data []byte) { data[0] = 'x' }))
	require.Empty(t, gaps(t, dir), "the record has a good checksum")
	before[41].Data[0] = 'x'
	after, err := s.Drafts(t.Context(), "events")
	require.NoError(t, err)
	require.Equal(t, before, after)

	require.NoError(t, s.Rewrite(t.Context(), "events", before[:7]))
	after, err = s.Drafts(t.Context(), "events")
	require.NoError(t, err)
	require.Equal(t, before[:7], after)
	require.NoError(t, s.Erase("events", 3))
	require.Equal(t, []store.Pos{4}, gaps(t, dir))
}
