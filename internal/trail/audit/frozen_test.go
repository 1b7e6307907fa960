package audit

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

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

	atLine, goOn := make(chan struct{}), make(chan struct{})
	tries := 0
	st.log(CheckpointsLog).failing = func() error {
		if tries++; tries == 1 {
			close(atLine)
			<-goOn
		}
		return nil
	}
	signed := make(chan error, 1)
	go func() { signed <- frozen.Sign(t.Context()) }()
	<-atLine
	appendEntries(t, other, 3, 5)
	require.NoError(t, other.Sign(t.Context()))
	before := records(t, st, CheckpointsLog)
	close(goOn)
	require.NoError(t, <-signed)
	require.Equal(t, 1, tries, "it was refused, and has nothing to sign")
	require.Equal(t, before, records(t, st, CheckpointsLog))
	for _, trail := range []*Trail{frozen, other} {
		requireWhole(t, trail, 5)
	}
	appendEntries(t, frozen, 5, 6)
	require.NoError(t, frozen.Sign(t.Context()))
	requireWhole(t, other, 6)
}
