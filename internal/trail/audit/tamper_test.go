package audit

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/internal/store"
	tlogproof "github.com/auditrelay/auditrelay/internal/trail/proof"
)

// tampering changes a copy of the trail, and says what Verify must name.
type tampering struct {
	entries     func(msgs []*store.Draft) []*store.Draft
	checkpoints func(msgs []*store.Draft) []*store.Draft
	delete      store.Pos // a sequence of the entries' stream, afterwards
	noPin       bool      // the one who tampers reaches the key's folder too
	pin         []byte    // put in the place of the newest
	want        []string
}

const missingPin = "the checkpoint next to the key (audit.key.checkpoint) is missing, though the key has signed"

func keep(msgs []*store.Draft) []*store.Draft { return msgs }

// alter changes one record as a careful forger would: canonical, same resource.
func alter(msg *store.Draft) {
	msg.Data = bytes.Replace(msg.Data, []byte(`"value":`), []byte(`"value":9`), 1)
}

func TestTampering(t *testing.T) {
	t.Parallel()
	o := testOptions(t)
	o.SignEvery = time.Hour // the trail signs the first entry by itself, and the test the others
	st, _ := startStore(t, t.TempDir())
	trail := openTrail(t, st, o)
	appendEntries(t, trail, 0, 1)
	waitSigned(t, trail, 1)
	pins := map[int64][]byte{} // by size
	for i := range 10 {        // checkpoints of size 1, 2, 4, 6 and so on
		appendEntries(t, trail, max(1, 2*i), 2*i+2)
		require.NoError(t, trail.Sign(t.Context()))
		var err error
		pins[trail.signed.Len()], err = os.ReadFile(o.KeyFile + ".checkpoint")
		require.NoError(t, err)
	}
	require.NoError(t, trail.Close(t.Context()))
	entries, checkpoints := records(t, st, EntriesLog), records(t, st, CheckpointsLog)
	require.Len(t, checkpoints, 11)

	for name, tc := range map[string]tampering{
		"untouched": {entries: keep},
		"altered": {
			entries: func(m []*store.Draft) []*store.Draft { alter(m[7]); return m },
			want:    []string{"altered: entry 7"},
		},
		"two altered": {
			entries: func(m []*store.Draft) []*store.Draft { alter(m[0]); alter(m[19]); return m },
			want:    []string{"altered: entry 0", "altered: entry 19"},
		},
		"removed": {
			entries: func(m []*store.Draft) []*store.Draft { return slices.Delete(m, 7, 8) },
			want:    []string{"missing: entry 7: it is nowhere, and another entry stands in its place", "moved: entries 8 to 19"},
		},
		"deleted in place": {
			entries: keep, delete: 8,
			want: []string{"missing: entry 7"},
		},
		"last deleted in place": {
			entries: keep, delete: 20,
			want: []string{"missing: entry 19"},
		},
		"swapped": {
			entries: func(m []*store.Draft) []*store.Draft { m[3], m[12] = m[12], m[3]; return m },
			want:    []string{"moved: entry 3: it stands +9", "moved: entry 12: it stands -9"},
		},
		"inserted": {entries: func(m []*store.Draft) []*store.Draft {
			forged := copyDraft(m[4])
			alter(forged)
			return slices.Insert(m, 4, forged)
		}, want: []string{"moved: entries 4 to 19: it stands +1"}},
		"truncated": {
			entries: func(m []*store.Draft) []*store.Draft { return m[:15] },
			want:    []string{"truncated: entries 15 to 19"},
		},
		"all gone": {
			entries: func(m []*store.Draft) []*store.Draft { return nil },
			want:    []string{"truncated: entries 0 to 19"},
		},
		"rolled back with its checkpoints": {
			entries:     func(m []*store.Draft) []*store.Draft { return m[:10] },
			checkpoints: func(m []*store.Draft) []*store.Draft { return m[:6] },
			want:        []string{"truncated: entries 10 to 19: the checkpoint next to the key covers 20"},
		},
		"under another resource": {entries: func(m []*store.Draft) []*store.Draft {
			m[6].Key = m[5].Key
			return m
		}, want: []string{"misfiled: entry 6"}},
		"altered with its hash": { // the forger redoes the list, but cannot sign
			entries: func(m []*store.Draft) []*store.Draft { alter(m[7]); return m },
			checkpoints: func(m []*store.Draft) []*store.Draft {
				changeKept(m[4], func(k *keptCheckpoint) { k.Leaves[40] ^= 1 })
				return m
			}, want: []string{"unproven: entries 6 to 7"},
		},
		"hashes damaged": { // the entries give the root without them
			entries: keep, checkpoints: func(m []*store.Draft) []*store.Draft {
				changeKept(m[4], func(k *keptCheckpoint) { k.Leaves[40] ^= 1 })
				return m
			}},
		"checkpoint removed and entry altered": {
			entries:     func(m []*store.Draft) []*store.Draft { alter(m[18]); return m },
			checkpoints: func(m []*store.Draft) []*store.Draft { return slices.Delete(m, 3, 4) },
			want:        []string{"altered: entry 18"},
		},
		"signature damaged": {entries: keep, noPin: true, checkpoints: func(m []*store.Draft) []*store.Draft {
			changeKept(m[4], func(k *keptCheckpoint) { k.Note = strings.Replace(k.Note, "\n8\n", "\n9\n", 1) })
			return m
		}, want: []string{"checkpoint 5: check signature", missingPin}},
		"rolled back, the pin deleted": {
			entries:     func(m []*store.Draft) []*store.Draft { return m[:10] },
			checkpoints: func(m []*store.Draft) []*store.Draft { return m[:6] },
			noPin:       true, want: []string{missingPin},
		},
		"pin deleted": {entries: keep, noPin: true, want: []string{missingPin}},
		"nothing left but the key": {
			entries:     func(m []*store.Draft) []*store.Draft { return nil },
			checkpoints: func(m []*store.Draft) []*store.Draft { return nil },
			noPin:       true, want: []string{missingPin},
		},
		"no checkpoints left, and no pin": {
			entries:     func(m []*store.Draft) []*store.Draft { alter(m[7]); return m },
			checkpoints: func(m []*store.Draft) []*store.Draft { return nil },
			noPin:       true, want: []string{missingPin},
		},
		"an older pin":   {entries: keep, pin: pins[10], want: []string{"covers 10 entries of its tree and is older than the newest 5 kept ones"}},
		"the pin before": {entries: keep, pin: pins[18]}, // as after a crash between the two
		"a pin of other entries": {
			entries: keep, pin: bytes.Replace(pins[20], []byte("\n20\n"), []byte("\n21\n"), 1),
			want: []string{"the checkpoint next to the key: check signature"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			copied := o
			copied.KeyFile = copyKey(t, o.KeyFile, !tc.noPin)
			if tc.pin != nil {
				require.NoError(t, os.WriteFile(copied.KeyFile+".checkpoint", tc.pin, 0o600))
			}
			st, _ := startStore(t, t.TempDir())
			changed := tc.checkpoints
			if changed == nil {
				changed = keep
			}
			replace(t, st, EntriesLog, tc.entries(copyAll(entries)), tc.delete)
			replace(t, st, CheckpointsLog, changed(copyAll(checkpoints)), 0)
			named := openAndName(t, st, copied)
			if tc.want == nil {
				require.Empty(t, named)
				return
			}
			text := spellOut(named)
			t.Log(text)
			for _, want := range tc.want {
				require.Contains(t, text, want)
			}
			require.LessOrEqual(t, strings.Count(text, ";"), 2*len(tc.want), "too much is named: %s", text)
			require.Equal(t, named, openAndName(t, st, copied), "a second start names it again, or forgets it")
		})
	}
}

// TestTwoHistoriesUnderOneKeyAreNamed signs another history with a copy of the key, from the middle
// of a trail on, and puts one of its checkpoints among those of the trail.
func TestTwoHistoriesUnderOneKeyAreNamed(t *testing.T) {
	t.Parallel()
	o := testOptions(t)
	o.SignEvery = time.Hour
	st, _ := startStore(t, t.TempDir())
	trail := openTrail(t, st, o)
	appendEntries(t, trail, 0, 1)
	waitSigned(t, trail, 1)
	copied := o
	for i := range 5 { // checkpoints of size 1, 2, 4, 6, 8 and 10
		if i == 2 {
			copied.KeyFile = copyKey(t, o.KeyFile, true)
		}
		appendEntries(t, trail, max(1, 2*i), 2*i+2)
		require.NoError(t, trail.Sign(t.Context()))
	}
	require.NoError(t, trail.Close(t.Context()))
	entries, checkpoints := records(t, st, EntriesLog), records(t, st, CheckpointsLog)

	other, _ := startStore(t, t.TempDir())
	replace(t, other, EntriesLog, copyAll(entries[:4]), 0)
	replace(t, other, CheckpointsLog, copyAll(checkpoints[:3]), 0)
	fork := openTrail(t, other, copied)
	for i := range 4 { // checkpoints of size 6, 8, 10 and 12
		for n := range 2 {
			_, err := fork.Append(t.Context(), testEntry(50+2*i+n))
			require.NoError(t, err)
		}
		require.NoError(t, fork.Sign(t.Context()))
	}
	require.NoError(t, fork.Close(t.Context()))
	forked := records(t, other, CheckpointsLog)[3:]

	for name, tc := range map[string]struct {
		checkpoints []*store.Draft
		want        string
	}{
		"a smaller one, at the end":   {append(copyAll(checkpoints), copyDraft(forked[0])), "checkpoint 7: " + twoHistories},
		"one of the same size":        {append(copyAll(checkpoints), copyDraft(forked[2])), "checkpoint 7: " + twoHistories},
		"a larger one":                {append(copyAll(checkpoints), copyDraft(forked[3])), "checkpoint 7: " + twoHistories},
		"one in the place of another": {slices.Replace(copyAll(checkpoints), 4, 5, copyDraft(forked[1])), "checkpoint 5: " + twoHistories},
		"an older one of the trail":   {append(copyAll(checkpoints), copyDraft(checkpoints[2])), ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			again := o
			again.KeyFile = copyKey(t, o.KeyFile, true)
			st, _ := startStore(t, t.TempDir())
			replace(t, st, EntriesLog, copyAll(entries), 0)
			replace(t, st, CheckpointsLog, tc.checkpoints, 0)
			named := openAndName(t, st, again)
			if tc.want == "" {
				require.Empty(t, named)
				return
			}
			require.Contains(t, spellOut(named), tc.want)
			require.Equal(t, named, openAndName(t, st, again), "a second start names it again, or forgets it")
		})
	}
}

// openAndName opens a trail, appends to it, and returns the problems that its own
// entries name, once they are signed. It must be whole but for those.
func openAndName(t *testing.T, st *testStore, o Options) (named []tlogproof.Finding) {
	t.Helper()
	trail, err := Open(t.Context(), st, o)
	require.NoError(t, err)
	readAll(t, trail)
	_, err = trail.Append(t.Context(), testEntry(100))
	require.NoError(t, err)
	require.NoError(t, trail.Close(t.Context()))
	require.Equal(t, trail.entriesOfTree(), trail.signed.Len())
	x, err := trail.examine(t.Context())
	require.NoError(t, err)
	require.Empty(t, x.named.unnamed(x.report.Problems))
	err = trail.Each(t.Context(), 0, func(e Recorded) error {
		if e.Project != OwnProject || e.Subject != ownSubject {
			return nil
		}
		var o Opening
		require.NoError(t, json.Unmarshal(e.Detail, &o))
		named = append(named, o.Problems...)
		return nil
	})
	require.NoError(t, err)
	return named
}

// TestVerifyWhileOpen damages the trail under a relay that runs: Verify names it,
// appends go on after it, and an entry of the trail names it.
func TestVerifyWhileOpen(t *testing.T) {
	t.Parallel()
	st, _ := startStore(t, t.TempDir())
	trail := openTrail(t, st, testOptions(t))
	appendEntries(t, trail, 0, 6)
	waitSigned(t, trail, 6)
	entries := records(t, st, EntriesLog)
	alter(entries[2])
	replace(t, st, EntriesLog, entries[:5], 0)

	report, err := trail.Verify(t.Context())
	require.NoError(t, err)
	require.ErrorContains(t, report.Err(), "altered: entry 2")
	require.ErrorContains(t, report.Err(), "truncated: entry 5")
	index, err := trail.Append(t.Context(), testEntry(6))
	require.NoError(t, err)
	require.EqualValues(t, 7, index, "behind the lost entry and the one that names the damage")
	last, found, err := trail.Last(t.Context(), OwnProject, "", ownSubject)
	require.NoError(t, err)
	require.True(t, found)
	require.Equal(t, TypeDamaged, last.Type)
	require.Contains(t, string(last.Detail), `"kind":"altered"`)
	require.Len(t, report.Generations, 1, "the hashes are kept, so the tree goes on")
}

func changeKept(m *store.Draft, change func(*keptCheckpoint)) {
	kept := keptCheckpoint{}
	if json.Unmarshal(m.Data, &kept) == nil {
		change(&kept)
		m.Data, _ = json.Marshal(kept)
	}
}

func copyKey(t *testing.T, file string, withPin bool) string {
	t.Helper()
	to := filepath.Join(t.TempDir(), "audit.key")
	suffixes := []string{""}
	if withPin {
		suffixes = append(suffixes, ".checkpoint")
	}
	for _, suffix := range suffixes {
		data, err := os.ReadFile(file + suffix)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(to+suffix, data, 0o600))
	}
	return to
}
