package audit

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/mod/sumdb/tlog"
)

// reopenUnmarked opens a trail as a crash left it: its key is not marked yet.
func (d *damageable) reopenUnmarked(t *testing.T, checkpoints int) (*Trail, *testStore) {
	t.Helper()
	d.o.KeyFile = copyKey(t, d.o.KeyFile, true)
	key, err := loadKey(d.o.KeyFile)
	require.NoError(t, err)
	require.True(t, key.marked)
	text, err := os.ReadFile(d.o.KeyFile)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(d.o.KeyFile, bytes.TrimPrefix(text, []byte(signedMark+"\n")), 0o600))
	return d.reopen(t, d.entries, d.checkpoints[:checkpoints], 0)
}

// newFirstSigned has a trail of one checkpoint.
func newFirstSigned(t *testing.T) *damageable {
	t.Helper()
	d := &damageable{o: testOptions(t)}
	d.o.SignEvery = time.Hour
	st, _ := startStore(t, t.TempDir())
	trail := openTrail(t, st, d.o)
	appendEntries(t, trail, 0, 1)
	waitSigned(t, trail, 1)
	require.NoError(t, trail.Close(t.Context()))
	d.entries, d.checkpoints = records(t, st, EntriesLog), records(t, st, CheckpointsLog)
	d.public, d.root = trail.PublicKey(), trail.treeNow().Root()
	return d
}

// A crash at each line from the first signature to the mark is no damage, and the
// start after it marks the key.
func TestACrashAtTheFirstSignature(t *testing.T) {
	t.Parallel()
	d := newFirstSigned(t)
	for name, published := range map[string]int{"pinned, not published": 0, "published, not marked": 1} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			crashed := *d
			trail, st := crashed.reopenUnmarked(t, published)
			require.NoError(t, trail.Close(t.Context()))
			require.EqualValues(t, 1, trail.Size(), "something is named")
			require.NotEmpty(t, records(t, st, CheckpointsLog))
			again := openTrail(t, st, crashed.o)
			require.EqualValues(t, 1, again.Size(), "something is named later")
			require.NoError(t, again.Close(t.Context()))
			require.Equal(t, d.public, trail.PublicKey())
			key, err := loadKey(crashed.o.KeyFile)
			require.NoError(t, err)
			require.True(t, key.marked)
		})
	}
}

// The first signature does not leave while nothing next to the key tells of it.
func TestNothingIsSignedWithoutAPin(t *testing.T) {
	t.Parallel()
	st, _ := startStore(t, t.TempDir())
	o := testOptions(t)
	o.SignEvery = time.Hour
	trail := openTrail(t, st, o)
	pin := o.KeyFile + ".checkpoint"
	require.NoError(t, os.Mkdir(pin, 0o700)) // no file can take its place
	appendEntries(t, trail, 0, 1)
	require.ErrorContains(t, trail.Sign(t.Context()), "next to the key")
	require.Empty(t, records(t, st, CheckpointsLog))
	require.NoError(t, os.Remove(pin))
	require.NoError(t, trail.Sign(t.Context()))
	require.Len(t, records(t, st, CheckpointsLog), 1)
	require.FileExists(t, pin)
}

// A later pin that cannot be written delays no signature, and is written later.
func TestAPinIsTriedAgain(t *testing.T) {
	t.Parallel()
	st, _ := startStore(t, t.TempDir())
	o := testOptions(t)
	o.SignEvery = time.Hour
	trail := openTrail(t, st, o)
	appendEntries(t, trail, 0, 1)
	waitSigned(t, trail, 1)
	pin := o.KeyFile + ".checkpoint"
	require.NoError(t, trail.Sign(t.Context())) // has waited for the pin, too
	require.NoError(t, os.Remove(pin))
	require.NoError(t, os.Mkdir(pin, 0o700))
	appendEntries(t, trail, 1, 2)
	require.ErrorContains(t, trail.Sign(t.Context()), "next to the key")
	require.Len(t, records(t, st, CheckpointsLog), 2)
	require.NoError(t, os.Remove(pin))
	require.NoError(t, trail.Sign(t.Context()))
	require.FileExists(t, pin)
	requireWhole(t, trail, 2)
}

// A key made beforehand is new until it signs, however often the relay starts.
func TestANewKeyIsNoLostTrail(t *testing.T) {
	t.Parallel()
	st, _ := startStore(t, t.TempDir())
	o := testOptions(t)
	key, err := generateKey(o.KeyFile, "example.com/made")
	require.NoError(t, err)
	for range 2 {
		trail := openTrail(t, st, o)
		require.Zero(t, trail.Size())
		require.Equal(t, key.public, trail.PublicKey())
		require.NoError(t, trail.Close(t.Context()))
	}
	trail := openTrail(t, st, o)
	appendEntries(t, trail, 0, 1)
	require.NoError(t, trail.Close(t.Context()))
	requireWhole(t, trail, 1)
}

// Where a key's file is not the relay's own to change, a file next to the pin marks it.
func TestASharedKeyFileIsMarkedBesideIt(t *testing.T) {
	t.Parallel()
	d := &damageable{o: testOptions(t)}
	_, err := generateKey(d.o.KeyFile, "example.com/trail")
	require.NoError(t, err)
	made, err := os.ReadFile(d.o.KeyFile)
	require.NoError(t, err)
	require.NoError(t, os.Chmod(d.o.KeyFile, 0o640))
	st, _ := startStore(t, t.TempDir())
	trail := openTrail(t, st, d.o)
	appendEntries(t, trail, 0, 1)
	require.NoError(t, trail.Close(t.Context()))
	text, err := os.ReadFile(d.o.KeyFile)
	require.NoError(t, err)
	require.Equal(t, string(made), string(text))
	require.FileExists(t, filepath.Join(filepath.Dir(d.o.KeyFile), "audit.key.signed"))
	require.NoError(t, os.Remove(d.o.KeyFile+".checkpoint"))
	fresh, _ := startStore(t, t.TempDir())
	require.Contains(t, openingOf(t, openTrail(t, fresh, d.o)).Reason, "nothing is left of all that the key has signed")
}

// Two relays with one trail sign at different sizes. A pin at a size that only the other
// one kept is no damage; one with another root is.
func TestAPinAtASizeNobodyKept(t *testing.T) {
	t.Parallel()
	st, _ := startStore(t, t.TempDir())
	o := testOptions(t)
	o.SignEvery = time.Hour
	trail := openTrail(t, st, o)
	appendEntries(t, trail, 0, 1)
	waitSigned(t, trail, 1)
	appendEntries(t, trail, 1, 5)
	require.NoError(t, trail.Sign(t.Context()))
	var leaves []tlog.Hash
	require.NoError(t, trail.Each(t.Context(), 0, func(e Recorded) error {
		leaves = append(leaves, e.Leaf)
		return nil
	}))
	for _, of := range []struct {
		leaf tlog.Hash
		want string
	}{{leaves[2], ""}, {leaves[3], "not among the kept ones"}} {
		signed, err := signCheckpoint(t.Context(), trail.key, tree{}.With(leaves[0], leaves[1], of.leaf), "", time.Now())
		require.NoError(t, err)
		require.NoError(t, writePin(trail.options.pinFile(), signed))
		report, err := trail.Verify(t.Context())
		require.NoError(t, err)
		if of.want == "" {
			require.NoError(t, report.Err())
		} else {
			require.ErrorContains(t, report.Err(), of.want)
		}
	}
}
