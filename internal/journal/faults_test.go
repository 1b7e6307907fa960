package journal

import (
	"math/rand/v2"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/internal/journal/record"
	"github.com/auditrelay/auditrelay/internal/store"
	"github.com/auditrelay/auditrelay/internal/testbed/damage"
	"github.com/auditrelay/auditrelay/relay"
	"github.com/auditrelay/auditrelay/relay/relaytest"
)

// Two or three files of a store are harmed at once, as by a bad disk and a careless restore. Whatever it
// is, the journal opens, and each record is there as it was, or stands in a gap that is named; none is
// called trimmed, and no position is given out again.
func TestNoFaultsLoseARecordInSilence(t *testing.T) {
	t.Parallel()
	base, earlier := t.TempDir(), t.TempDir()
	cfg := testConfig
	cfg.MaxBytes = 4 << 20
	noise := rand.NewChaCha8([32]byte{})
	push := func(t *testing.T, j *opened, n int) {
		for range n { // seven fill a segment
			e := relaytest.Events(1)[0]
			e.Body = make([]byte, 18_000)
			_, _ = noise.Read(e.Body)
			j.push(t, []relay.Event{e})
		}
	}
	j := open(t, base, cfg)
	push(t, j, 24)
	j.shut(t)
	require.NoError(t, damage.CopyDir(base, earlier))
	j = open(t, base, cfg)
	push(t, j, 12)
	for sink, n := range map[string]int{"behind": 20, "ahead": 36} {
		s, err := j.Source(t.Context(), sink, relay.BatchLimit{Events: 1, Bytes: 1 << 20})
		require.NoError(t, err)
		read(t, s, n, true)
		s.Close()
	}
	sums, _, _ := j.content(t)
	require.Len(t, sums, 36)
	j.shut(t)

	for seed := range uint64(60) {
		rng := rand.New(rand.NewPCG(seed, 1))
		dir, about := filepath.Join(t.TempDir(), strconv.FormatUint(seed, 10)), []string{}
		require.NoError(t, damage.CopyDir(base, dir))
		for range 2 + seed%2 {
			what, err := damage.Of(dir).Random(rng, damage.Of(earlier))
			about = append(about, what)
			if err != nil {
				about = append(about, err.Error()) // a file that is gone already, for instance
			}
		}
		j := open(t, dir, cfg)
		held, lost, trimmed := j.content(t)
		assert.Empty(t, trimmed, "seed %d: %q", seed, about)
		for pos := range sums {
			if sum, there := held[pos]; there {
				assert.Equal(t, sums[pos], sum, "position %d, seed %d: %q", pos, seed, about)
			} else {
				assert.Empty(t, lost.missing(pos, pos), "position %d, seed %d: %q", pos, seed, about)
			}
		}
		push(t, j, 1)
		j.shut(t)
	}
}

// content is what the log has: the checksums of its records, and its gaps.
func (o *opened) content(t *testing.T) (held map[store.Pos]uint64, lost, trimmed ranges) {
	t.Helper()
	held = map[store.Pos]uint64{}
	for item, err := range o.events.Read(t.Context(), 1, false) {
		require.NoError(t, err)
		switch gap := item.Gap; {
		case gap == nil:
			held[item.Record.Pos] = record.Checksum(item.Record.Data)
		case gap.Why == store.Trimmed:
			trimmed = trimmed.with(gap.From, gap.To)
		default:
			lost = lost.with(gap.From, gap.To)
		}
	}
	return held, lost, trimmed
}
