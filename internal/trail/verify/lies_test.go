package verify

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/internal/trail/audit"
	"github.com/auditrelay/auditrelay/internal/trail/eventproof"
)

// A checkpoint from elsewhere is held against the log that it names, or it is named itself: of another
// key, or altered, it would else count for nothing in silence.
func TestACheckpointFromElsewhereCountsOrIsNamed(t *testing.T) {
	t.Parallel()
	l := newTestLog(t, "example.com/log", 0)
	l.add(t, records(0, 300)...)
	l.sign(t)
	l.write(t)
	o := Options{Policy: policy(t, 0, l.key.verifier), Known: [][]byte{l.checkpoint(t, 200)}}
	sound(t, check(t, l.files, o))

	forger := newTestLog(t, "example.com/log", 0)
	forger.key = renamedKey(t, "another secret", "example.com/log")
	forger.add(t, records(100, 500)...)
	altered := bytes.Replace(l.checkpoint(t, 200), []byte("\n200\n"), []byte("\n201\n"), 1)
	of := func(name string) []byte {
		other := newTestLog(t, name, 0)
		other.add(t, records(0, 200)...)
		return other.checkpoint(t, 200)
	}
	for want, known := range map[string][]byte{
		"checkpoint: a checkpoint known from elsewhere: open checkpoint: no log of the policy has signed it":     forger.checkpoint(t, 200),
		"checkpoint: a checkpoint known from elsewhere: open checkpoint: invalid signature for key":              altered,
		`history: a checkpoint known from elsewhere is of the log "example.com/log/from-300", which is not here`: of("example.com/log/from-300"),
		`history: a checkpoint known from elsewhere is of the log "example.com/another", which is not here`:      of("example.com/another"),
		`history: a checkpoint known from elsewhere is of the log "", which is not here`:                         []byte("no checkpoint"),
		"missing: entries 300 to 399: a checkpoint known from elsewhere covers 400 entries, this log's newest 300: the log went back": func() []byte {
			longer := newTestLog(t, "example.com/log", 0)
			longer.add(t, records(0, 400)...)
			return longer.checkpoint(t, 400)
		}(),
	} {
		o.Known = [][]byte{known}
		found := texts(check(t, l.files, o).Integrity)
		require.Len(t, found, 1, want)
		assert.Contains(t, found[0], want)
	}
}

// A witness that refuses may name any size, also one that a record has as a text.
func TestARefusalCountsWhateverSizeTheWitnessNames(t *testing.T) {
	t.Parallel()
	for _, size := range []int64{0, 7, 1<<53 + 1, 1<<63 - 1} {
		l := newTestLog(t, "example.com/log", 0)
		l.add(t, entryOf(t, audit.TypeWitnessRefused, audit.WitnessRefusal{Witness: "w", Reason: "another tree", WitnessSize: size, Size: 5}))
		l.sign(t)
		r := check(t, l.write(t), Options{Policy: policy(t, 0, l.key.verifier)})
		assert.Equal(t, []string{"history: entry 0 says that the witness w refused the tree of 5 entries: another tree"}, texts(r.Integrity))
	}
}

// Two generations that have signed the same indexes are two histories, whatever the second one says of the
// first.
func TestGenerationsDoNotOverlap(t *testing.T) {
	t.Parallel()
	for base, found := range map[int64][]string{
		5: nil,
		4: {"history: it begins with entry 4, and the generation before it has signed the entries up to 4: the trail has two histories"},
	} {
		first, second := newTestLog(t, "example.com/log", 0), newTestLog(t, fmt.Sprintf("example.com/log/from-%d", base), base)
		first.add(t, records(0, 5)...)
		first.sign(t)
		before := check(t, first.write(t), Options{}).Logs[0]
		second.seq = 1
		second.add(t, entryOf(t, audit.TypeGeneration, map[string]any{"previous": audit.Generation{Origin: before.Origin, Size: before.Size, Root: before.Root}}))
		second.sign(t)
		f := files{}
		for n, l := range []*testLog{first, second} {
			for name, data := range l.write(t) {
				f[fmt.Sprintf("%d/%s", n, name)] = data
			}
		}
		r, err := Trail(t.Context(), f.fetch, []string{"0", "1"}, Options{Policy: policy(t, 0, first.key.verifier)})
		require.NoError(t, err)
		assert.Equal(t, found, texts(r.Integrity))
	}
}

// An older log next to the generations of a trail hides none of them.
func TestALogNextToTheGenerationsHidesNothing(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	put := func(below string, f files) {
		for name, data := range f {
			to := filepath.Join(dir, below, filepath.FromSlash(name))
			require.NoError(t, os.MkdirAll(filepath.Dir(to), 0o700))
			require.NoError(t, os.WriteFile(to, data, 0o600))
		}
	}
	l := newTestLog(t, "example.com/log", 0)
	l.add(t, records(0, 20)...)
	l.sign(t)
	put("", l.write(t))
	verified := func() Report {
		fetch, dirs, err := Folder(dir)
		require.NoError(t, err)
		r, err := Trail(t.Context(), fetch, dirs, Options{Policy: policy(t, 0, l.key.verifier)})
		require.NoError(t, err)
		return r
	}
	require.EqualValues(t, 20, verified().Entries, "a log alone")
	l.add(t, records(20, 50)...)
	l.sign(t)
	put("0", l.write(t))
	require.EqualValues(t, 50, verified().Entries)
	require.NoError(t, os.Remove(filepath.Join(dir, "0", "checkpoints")))
	require.NotEmpty(t, verified().Integrity.Findings)
}

// Positions that a span covers a second time are named, also where the span does not say so.
func TestSpansThatOverlapAreNamed(t *testing.T) {
	t.Parallel()
	one := spanAt(1, 10, nil)
	two := spanAt(8, 20, previousOf(t, 0, one))
	of := func(s eventproof.Span) []byte { return entryOf(t, eventproof.Type, s) }
	assert.Equal(t, []string{"span: entry 1: it covers positions up to 10 a second time, and does not say so"}, completenessOf(t, of(one), of(two)))
	two.Again = 10
	assert.Equal(t, []string{"span: entry 1: the event stream went back: the positions 8 to 10 have other events now"}, completenessOf(t, of(one), of(two)))
}
