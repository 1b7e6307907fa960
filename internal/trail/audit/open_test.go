package audit

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/internal/store"
	"github.com/auditrelay/auditrelay/internal/testbed/waiting"
)

// crash ends a trail as a kill does: nothing more is signed.
func crash(trail *Trail) {
	trail.stop()
	<-trail.done
}

// A start goes on from the newest checkpoint, after a clean stop and after a kill.
func TestAStartGoesOn(t *testing.T) {
	t.Parallel()
	o := testOptions(t)
	o.SignEvery = time.Hour
	st, _ := startStore(t, t.TempDir())
	trail := openTrail(t, st, o)
	appendEntries(t, trail, 0, 10)
	require.NoError(t, trail.Close(t.Context()))

	trail = openTrail(t, st, o)
	requireWhole(t, trail, 10)
	require.EqualValues(t, 10, trail.signed.Len())
	require.EqualValues(t, 10, trail.Generations()[0].Size)
	require.NoError(t, trail.Sign(t.Context()))
	appendEntries(t, trail, 10, 15)
	require.False(t, trail.stale.Load())
	crash(trail)

	trail = openTrail(t, st, o)
	require.EqualValues(t, 15, trail.Size())
	last, found, err := trail.Last(t.Context(), "acme", "live", "resource.2")
	require.NoError(t, err)
	require.True(t, found)
	require.EqualValues(t, 14, last.Index)
	appendEntries(t, trail, 15, 20)
	require.NoError(t, trail.Close(t.Context()))
	trail = openTrail(t, st, o)
	requireWhole(t, trail, 20)
	require.Len(t, trail.Generations(), 1, "the tree is the same one")
}

// A trail that takes long to read holds up no start: who asks it waits.
func TestALongReadingHoldsUpNoStart(t *testing.T) {
	t.Parallel()
	o := testOptions(t)
	st, _ := startStore(t, t.TempDir())
	trail := openTrail(t, st, o)
	appendEntries(t, trail, 0, 10)
	require.NoError(t, trail.Close(t.Context()))

	gate := make(chan struct{})
	st.log(EntriesLog).gate = gate
	trail, err := Open(t.Context(), st, o)
	require.NoError(t, err)
	require.Zero(t, trail.Size())
	require.Empty(t, trail.PublicKey())
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = trail.Get(ended, 3)
	require.ErrorIs(t, err, context.Canceled)
	_, err = trail.Append(ended, testEntry(99))
	require.ErrorIs(t, err, context.Canceled)
	got, appended := make(chan error), make(chan error)
	go func() {
		_, err := trail.Get(t.Context(), 3)
		got <- err
	}()
	go func() {
		_, err := trail.Append(t.Context(), testEntry(10))
		appended <- err
	}()
	close(gate)
	require.NoError(t, <-got)
	require.NoError(t, <-appended)
	require.NoError(t, trail.Close(t.Context()))
	last, found, err := openTrail(t, st, o).Last(t.Context(), "acme", "live", testEntry(10).Subject)
	require.NoError(t, err)
	require.True(t, found)
	require.Equal(t, string(testEntry(10).After), string(last.After))
}

// A relay that stops while its trail is read waits for no end of the reading.
func TestALongReadingHoldsUpNoStop(t *testing.T) {
	t.Parallel()
	o := testOptions(t)
	st, _ := startStore(t, t.TempDir())
	gate := make(chan struct{})
	st.log(EntriesLog).gate = gate
	trail, err := Open(t.Context(), st, o)
	require.NoError(t, err)
	require.NoError(t, trail.Close(t.Context()))
	close(gate)
}

// A caller who gives up while the trail is read back makes it unusable for nobody else.
func TestACallerWhoGivesUpLeavesTheTrailUsable(t *testing.T) {
	t.Parallel()
	o := testOptions(t)
	o.SignEvery = time.Hour
	st, _ := startStore(t, t.TempDir())
	trail := openTrail(t, st, o)
	appendEntries(t, trail, 0, 10)

	gate := make(chan struct{})
	st.log(EntriesLog).gate = gate
	trail.stale.Store(true)
	impatient, cancel := context.WithCancel(t.Context())
	gaveUp := make(chan error)
	go func() { gaveUp <- trail.Sign(impatient) }()
	waiting.Until(t, func() bool { return !trail.stale.Load() }, "the trail is not read back")
	cancel()
	require.ErrorIs(t, <-gaveUp, context.Canceled)
	close(gate)
	require.NoError(t, trail.Sign(t.Context()))
	requireWhole(t, trail, 10)
	require.False(t, trail.stale.Load())
}

// Entries unlike the signed ones are found before anything of them is handed on.
func TestAStartHashesAllEntries(t *testing.T) {
	t.Parallel()
	d := newDamageable(t)
	for name, spoil := range map[string]func(m []*store.Draft) []*store.Draft{
		"a signed one":   func(m []*store.Draft) []*store.Draft { alter(m[7]); return m },
		"the first one":  func(m []*store.Draft) []*store.Draft { alter(m[0]); return m },
		"one is lost":    func(m []*store.Draft) []*store.Draft { m[3].Kind, m[3].Data = kindLost, nil; return m },
		"the last ones":  func(m []*store.Draft) []*store.Draft { return m[:18] },
		"another order":  func(m []*store.Draft) []*store.Draft { m[3], m[12] = m[12], m[3]; return m },
		"another log":    func(m []*store.Draft) []*store.Draft { return copyAll(newDamageable(t).entries) },
		"nothing at all": func(m []*store.Draft) []*store.Draft { return nil },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			copied := *d
			copied.o.KeyFile = copyKey(t, d.o.KeyFile, true)
			st, _ := startStore(t, t.TempDir())
			replace(t, st, EntriesLog, spoil(copyAll(d.entries)), 0)
			replace(t, st, CheckpointsLog, copyAll(d.checkpoints), 0)
			trail := openTrail(t, st, copied.o)
			require.NotEmpty(t, openingOf(t, trail).Problems)
			require.NoError(t, trail.Close(t.Context()))
		})
	}
}

// An entry that nobody has signed yet is looked at before it is signed.
func TestAStartSignsNoEntryUnseen(t *testing.T) {
	t.Parallel()
	d := newDamageable(t)
	strange := copyDraft(d.entries[18])
	strange.Data = append([]byte(" "), strange.Data...)
	trail, _ := d.reopen(t, append(copyAll(d.entries), strange), d.checkpoints, 0)
	require.Contains(t, spellOut(openingOf(t, trail).Problems), "misfiled: entry 20: the record is not in canonical form")
}

// What no hash covers is found and named too.
func TestAnEntryUnderAnotherKeyIsNamed(t *testing.T) {
	t.Parallel()
	d := newDamageable(t)
	entries := copyAll(d.entries)
	entries[6].Key = entries[5].Key
	trail, st := d.reopen(t, entries, d.checkpoints, 0)
	index, err := trail.Append(t.Context(), testEntry(20))
	require.NoError(t, err)
	require.EqualValues(t, 21, index, "after the entry that names it")
	require.Contains(t, spellOut(openingOf(t, trail).Problems), "misfiled: entry 6")
	require.NoError(t, trail.Close(t.Context()))
	again := openTrail(t, st, d.o)
	require.EqualValues(t, 22, again.Size(), "it is named once")
	e, err := again.Get(t.Context(), 7)
	require.NoError(t, err)
	require.False(t, e.Unsound)
}

// A start knows all generations, and what is wrong with an older one.
func TestAStartKnowsAllGenerations(t *testing.T) {
	t.Parallel()
	o := testOptions(t)
	st, _ := startStore(t, t.TempDir())
	trail := openTrail(t, st, o)
	appendEntries(t, trail, 0, 10)
	for range 2 {
		_, err := trail.Rotate(t.Context(), Person{User: "alice", Host: "h"})
		require.NoError(t, err)
	}
	want := trail.Generations()
	require.Len(t, want, 3)
	require.NoError(t, trail.Close(t.Context()))
	trail = openTrail(t, st, o)
	got := trail.Generations()
	require.Equal(t, want[:2], got[:2])
	require.True(t, got[2].Endorsed)
	require.NoError(t, trail.Close(t.Context()))

	entries := records(t, st, EntriesLog)
	alter(entries[3])
	replace(t, st, EntriesLog, entries, 0)
	trail = openTrail(t, st, o)
	require.Contains(t, spellOut(openingOf(t, trail).Problems), "altered: entry 3")
}

// TestAMillionEntriesOpen prints what an opening takes. Set AUDITRELAY_MILLION=1; it takes minutes.
func TestAMillionEntriesOpen(t *testing.T) {
	if os.Getenv("AUDITRELAY_MILLION") == "" {
		t.Skip("SKIPPED: with AUDITRELAY_MILLION=1 a trail of a million entries is opened, which takes minutes")
	}
	const n = 1_000_000
	o := testOptions(t)
	st, _ := startStore(t, t.TempDir())
	trail := openTrail(t, st, o)
	require.NoError(t, trail.Close(t.Context()))
	drafts := make([]store.Draft, 0, 1000)
	for i := range n {
		record, err := encodeRecord(testEntry(i))
		require.NoError(t, err)
		drafts = append(drafts, trail.codec.pack("acme.live."+token(testEntry(i).Subject), record))
		if len(drafts) == cap(drafts) {
			_, err = st.log(EntriesLog).Append(t.Context(), drafts...)
			require.NoError(t, err)
			drafts = drafts[:0]
		}
	}
	for range 3 {
		start := time.Now()
		trail, err := Open(t.Context(), st, o)
		require.NoError(t, err)
		t.Logf("a start waits for it: %v", time.Since(start).Round(10*time.Microsecond))
		readAll(t, trail)
		t.Logf("opened: %v", time.Since(start).Round(time.Millisecond))
		require.EqualValues(t, n, trail.Size())
		waitSigned(t, trail, n)
		require.NoError(t, trail.Close(t.Context()))
	}
}
