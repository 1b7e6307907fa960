package audit

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/internal/store"
)

// crash ends a trail as a kill does: nothing more is signed.
func crash(trail *Trail) {
	trail.stop()
	<-trail.done
	<-trail.read
}

// A start goes on from the newest checkpoint, after a clean stop and after a kill.
func TestAStartReadsInTheBackground(t *testing.T) {
	t.Parallel()
	o := testOptions(t)
	o.SignEvery = time.Hour
	st, _ := startStore(t, t.TempDir())
	trail := openTrail(t, st, o)
	require.False(t, trail.resumed, "nothing is known yet")
	appendEntries(t, trail, 0, 10)
	require.NoError(t, trail.Close(t.Context()))

	trail = openTrail(t, st, o)
	require.True(t, trail.resumed)
	requireWhole(t, trail, 10)
	require.EqualValues(t, 10, trail.signed.Len())
	require.EqualValues(t, 10, trail.Generations()[0].Size)
	require.NoError(t, trail.sign(t.Context()))
	appendEntries(t, trail, 10, 15)
	<-trail.read
	require.False(t, trail.stale.Load())
	crash(trail)

	trail = openTrail(t, st, o)
	require.True(t, trail.resumed)
	require.EqualValues(t, 15, trail.Size())
	last, found, err := trail.Last(t.Context(), "acme", "live", "resource.2")
	require.NoError(t, err)
	require.True(t, found)
	require.EqualValues(t, 14, last.Index)
	appendEntries(t, trail, 15, 20)
	require.NoError(t, trail.Close(t.Context()))
	o.ReadAll = true
	trail = openTrail(t, st, o)
	require.False(t, trail.resumed)
	requireWhole(t, trail, 20)
	require.Len(t, trail.Generations(), 1, "the tree is the same one")
}

// Nothing that stands next to the key has a start go on with another tree, key or state
// than the streams prove.
func TestAForgedNoteHasAllReadFirst(t *testing.T) {
	t.Parallel()
	o := testOptions(t)
	st, _ := startStore(t, t.TempDir())
	trail := openTrail(t, st, o)
	appendEntries(t, trail, 0, 10)
	waitSigned(t, trail, 10)
	require.NoError(t, trail.Close(t.Context()))
	trail = openTrail(t, st, o)
	require.True(t, trail.resumed)
	<-trail.read
	require.NoError(t, trail.Close(t.Context()))
	note, err := os.ReadFile(trail.verifiedFile())
	require.NoError(t, err)
	stranger := testOptions(t)
	_, err = generateKey(stranger.KeyFile, "example.com/trail")
	require.NoError(t, err)
	for name, forge := range map[string]func(file string) error{
		"another text": func(file string) error {
			return os.WriteFile(file, []byte(strings.Replace(string(note), `"base":0`, `"base":1`, 1)), 0o600)
		},
		"no signature": func(file string) error { return os.WriteFile(file, note[:len(note)-20], 0o600) },
		"torn":         func(file string) error { return os.WriteFile(file, note[:20], 0o600) },
		"gone":         os.Remove,
		"empty":        func(file string) error { return os.WriteFile(file, nil, 0o600) },
	} {
		require.NoError(t, os.WriteFile(trail.verifiedFile(), note, 0o600))
		require.NoError(t, forge(trail.verifiedFile()), name)
		again := openTrail(t, st, o)
		require.False(t, again.resumed, name)
		requireWhole(t, again, 10)
		<-again.read
		require.NoError(t, again.Close(t.Context()))
		again = openTrail(t, st, o)
		require.True(t, again.resumed, "%s: the note is made anew", name)
		require.NoError(t, again.Close(t.Context()))
	}
}

// A log that somebody has put in the place of one that was read is read before anything of it
// is handed on, however alike the two are.
func TestAnotherLogIsReadFirst(t *testing.T) {
	t.Parallel()
	o := testOptions(t)
	st, _ := startStore(t, t.TempDir())
	trail := openTrail(t, st, o)
	appendEntries(t, trail, 0, 10)
	waitSigned(t, trail, 10)
	require.NoError(t, trail.Close(t.Context()))
	for _, name := range []string{EntriesLog, CheckpointsLog} {
		trail = openTrail(t, st, o)
		require.True(t, trail.resumed)
		<-trail.read
		require.NoError(t, trail.Close(t.Context()))
		st.log(name).id.Log[15]++
		trail = openTrail(t, st, o)
		require.False(t, trail.resumed, name)
		requireWhole(t, trail, 10)
		<-trail.read
		require.NoError(t, trail.Close(t.Context()))
	}
}

// Damage after the newest reading is found and named while the relay runs, as a start
// that reads everything names it: see TestTampering, too.
func TestDamageSinceTheNewestReadingIsNamed(t *testing.T) {
	t.Parallel()
	d := newDamageable(t)
	entries := copyAll(d.entries)
	alter(entries[7])
	trail, st := d.reopen(t, entries, d.checkpoints, 0)
	require.True(t, trail.resumed, "the streams look as they did")
	<-trail.read
	index, err := trail.Append(t.Context(), testEntry(20))
	require.NoError(t, err)
	require.EqualValues(t, 21, index, "behind the entry that names it")
	require.Equal(t, []Problem{{"altered", 7, 7, "it does not have the hash that was signed"}}, openingOf(t, trail).Problems)
	e, err := trail.Get(t.Context(), 7)
	require.NoError(t, err)
	require.True(t, e.Unsound)
	require.NoError(t, trail.Close(t.Context()))
	again := openTrail(t, st, d.o)
	require.True(t, again.resumed, "the reading that named it was of everything")
	<-again.read
	require.EqualValues(t, 22, again.Size(), "it is named once")
	e, err = again.Get(t.Context(), 7)
	require.NoError(t, err)
	require.True(t, e.Unsound)
}

// TestAMillionEntriesOpen prints what an opening takes: with everything read first, as
// before, and resumed. Set AUDITRELAY_MILLION=1; it takes minutes.
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
	o.ReadAll = true
	for _, name := range []string{"with everything read, the first time, and signed", "with everything read"} {
		start := time.Now()
		trail = openTrail(t, st, o)
		t.Logf("opened %s: %v", name, time.Since(start).Round(time.Millisecond))
		waitSigned(t, trail, n)
		require.NoError(t, trail.Close(t.Context()))
	}
	o.ReadAll = false
	for range 5 {
		start := time.Now()
		trail, err := Open(t.Context(), st, o) // without a wait for what is read in the background
		require.NoError(t, err)
		t.Logf("resumed: %v", time.Since(start).Round(10*time.Microsecond))
		require.True(t, trail.resumed)
		require.EqualValues(t, n, trail.Size())
		require.NoError(t, trail.Close(t.Context()))
	}
	start := time.Now()
	trail = openTrail(t, st, o)
	<-trail.read
	t.Logf("read in the background: %v", time.Since(start).Round(time.Millisecond))
	require.False(t, trail.stale.Load())
}
