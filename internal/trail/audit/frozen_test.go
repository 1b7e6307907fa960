package audit

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/internal/store"
)

// freezeAtAppend has the first append to a log stop at that line until goOn is closed. It counts the tries.
func freezeAtAppend(l *testLog) (atLine, goOn chan struct{}, tries *int) {
	atLine, goOn, tries = make(chan struct{}), make(chan struct{}), new(int)
	l.failing = func() error {
		if *tries++; *tries == 1 {
			close(atLine)
			<-goOn
		}
		return nil
	}
	return atLine, goOn, tries
}

// A relay is frozen between its signature and the checkpoint's append, and another one signs more
// meanwhile. What it appends when it goes on is refused: it takes up the other one's checkpoint, and
// the trail has one history.
func TestACheckpointOfAFrozenRelayIsRefused(t *testing.T) {
	t.Parallel()
	st, _ := startStore(t, t.TempDir())
	o := testOptions(t)
	o.SignEvery = time.Hour
	frozen := openTrail(t, st, o)
	appendEntries(t, frozen, 0, 1)
	waitSigned(t, frozen, 1)
	other := openTrail(t, &testStore{Store: st.Store, t: t, logs: map[string]*testLog{}}, o)
	appendEntries(t, frozen, 1, 3)

	atLine, goOn, tries := freezeAtAppend(st.log(CheckpointsLog))
	signed := make(chan error, 1)
	go func() { signed <- frozen.Sign(t.Context()) }()
	<-atLine
	appendEntries(t, other, 3, 5)
	require.NoError(t, other.Sign(t.Context()))
	before := records(t, st, CheckpointsLog)
	close(goOn)
	require.NoError(t, <-signed)
	require.Equal(t, 1, *tries, "it was refused, and has nothing to sign")
	require.Equal(t, before, records(t, st, CheckpointsLog))
	for _, trail := range []*Trail{frozen, other} {
		requireWhole(t, trail, 5)
	}
	appendEntries(t, frozen, 5, 6)
	require.NoError(t, frozen.Sign(t.Context()))
	requireWhole(t, other, 6)
}

// A relay that was frozen while its journal was moved away may add an entry to the old place. It signs none
// of them, so that there is no second history under its key.
func TestNothingIsSignedUnlessNobodyElseCanWrite(t *testing.T) {
	t.Parallel()
	st, _ := startStore(t, t.TempDir())
	o := testOptions(t)
	var dead atomic.Bool
	o.Certain = func(ctx context.Context) error {
		if dead.Load() {
			return context.DeadlineExceeded
		}
		return ctx.Err()
	}
	trail := openTrail(t, st, o)
	appendEntries(t, trail, 0, 2)
	waitSigned(t, trail, 2)
	dead.Store(true)
	before := records(t, st, CheckpointsLog)
	appendEntries(t, trail, 2, 3)
	require.ErrorIs(t, trail.Sign(t.Context()), ErrUnavailable)
	require.Equal(t, before, records(t, st, CheckpointsLog))
	dead.Store(false)
	require.NoError(t, trail.Sign(t.Context()))
	requireWhole(t, trail, 3)
}

// A relay is frozen while it keeps what witnesses have signed, and another one signs more meanwhile.
// What it keeps when it goes on is refused.
func TestACosignedCheckpointOfAFrozenRelayIsRefused(t *testing.T) {
	t.Parallel()
	st, _ := startStore(t, t.TempDir())
	o := testOptions(t)
	o.SignEvery = time.Hour
	frozen := openTrail(t, st, o)
	offers := frozen.Offers()
	appendEntries(t, frozen, 0, 1)
	waitSigned(t, frozen, 1)
	offer := <-offers
	other := openTrail(t, &testStore{Store: st.Store, t: t, logs: map[string]*testLog{}}, o)

	atLine, goOn, _ := freezeAtAppend(st.log(CheckpointsLog))
	kept := make(chan error, 1)
	go func() { kept <- frozen.KeepCosigned(t.Context(), offer, offer.Note) }()
	<-atLine
	appendEntries(t, other, 1, 3)
	require.NoError(t, other.Sign(t.Context()))
	before := records(t, st, CheckpointsLog)
	close(goOn)
	require.ErrorIs(t, <-kept, store.ErrConflict)
	require.Equal(t, before, records(t, st, CheckpointsLog))
	require.NoError(t, frozen.KeepCosigned(t.Context(), offer, offer.Note), "the newest one is on its way to the witnesses")
	require.Equal(t, before, records(t, st, CheckpointsLog))
	requireWhole(t, frozen, 3)
}

// A relay that was thought dead keeps no place of its way through the trail after another one has
// gone on.
func TestAFrozenRelayMovesNoPlaceInTheTrail(t *testing.T) {
	t.Parallel()
	st, _ := startStore(t, t.TempDir())
	o := testOptions(t)
	o.Shared = true
	one, other := openTrail(t, st, o), openTrail(t, st, o)
	appendEntries(t, one, 0, 3)
	way := func(trail *Trail) *forwarder {
		f := &forwarder{Trail: trail, table: trail.store.Table(), key: "trail/journal"}
		require.NoError(t, f.take(t.Context()))
		return f
	}
	frozen := way(one)
	frozen.at.Entries = 1
	next := way(other)
	next.at.Entries = 3
	require.NoError(t, next.save(t.Context()))
	require.ErrorIs(t, frozen.save(t.Context()), errAnother)
	require.EqualValues(t, 3, way(one).at.Entries)
}
