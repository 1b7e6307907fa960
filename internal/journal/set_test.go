package journal

import (
	"context"
	"fmt"
	"net"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/internal/store"
	"github.com/auditrelay/auditrelay/internal/testbed/natstest"
	"github.com/auditrelay/auditrelay/internal/testbed/waiting"
	"github.com/auditrelay/auditrelay/relay"
)

// From one shard to three and back to two, while relays are stopped and killed: each sink gets each
// environment's events in their order, also one that takes nothing meanwhile, and none is lost.
func TestTheNumberOfShardsChangesUnderLoad(t *testing.T) {
	t.Parallel()
	srv := natstest.Run(t, t.TempDir(), natstest.SyncAlways)
	c := newCast(t, srv.ClientURL())
	first, second := c.join(1), c.join(1)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	sending := c.sendFrom(ctx, 12)

	third := c.join(3)
	c.stop(second)
	c.goesOn()
	assert.Equal(t, 1, c.layout().Shards, "one relay does not want it yet")
	fourth := c.join(3)
	c.kill(first)
	c.hold(0, 1, 2)
	c.becomes(3)
	c.kill(third)
	c.hold()
	c.goesOn()

	fifth := c.join(2)
	c.stop(fourth)
	sixth := c.join(2)
	c.hold(0, 1, 2)
	c.becomes(2)
	c.kill(sixth)
	c.hold()
	c.goesOn()

	cancel()
	sending.Wait()
	c.sinksHave(c.next)
	t.Logf("%d events arrived, %d again", sumOfAll(c.delivered), c.again)
	c.stop(fifth)
}

func sumOfAll(of map[string]int) (sum int) {
	for _, n := range of {
		sum += n
	}
	return sum
}

// From two shards to three, and in the middle of that every relay is gone. The next ones want one
// shard, and come to that: no event is lost, and each environment's are in their order.
func TestAChangeOfTheNumberIsInterrupted(t *testing.T) {
	t.Parallel()
	srv := natstest.Run(t, t.TempDir(), natstest.SyncAlways)
	c := newCast(t, srv.ClientURL())
	first := c.join(2)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	sending := c.sendFrom(ctx, 6)
	second := c.join(3)
	c.stop(first)
	waiting.Until(t, func() bool { return c.layout().Next == 3 })
	c.kill(second)
	third := c.join(1)
	c.hold(0)
	c.becomes(1)
	assert.Equal(t, 3, c.layout().Logs)
	c.hold()
	c.goesOn()
	cancel()
	sending.Wait()
	c.sinksHave(c.next)
	c.stop(third)
}

// A relay that has not heard for long which layout counts takes nothing: it may have been moved.
func TestAStaleRelayTakesNothing(t *testing.T) {
	t.Parallel()
	srv := natstest.Run(t, t.TempDir(), natstest.SyncAlways)
	c := newCast(t, srv.ClientURL())
	n := c.join(2)
	require.NoError(t, n.Append(t.Context(), pushOf("e", 0)))
	n.stop() // it looks no more
	n.following.Wait()
	waiting.Until(t, n.isStale)
	require.ErrorIs(t, n.Append(t.Context(), pushOf("e", 1)), ErrUnavailable)
	n.take(&layout{Number: 9, Shards: 2, Logs: 2})
	require.ErrorIs(t, n.Append(t.Context(), pushOf("e", 1)), ErrUnavailable)
	c.stop(n)
}

// A relay takes nothing once the journal was moved away, and goes on if that is taken back.
func TestNothingIsTakenIntoAJournalThatWasMoved(t *testing.T) {
	t.Parallel()
	srv := natstest.Run(t, t.TempDir(), natstest.SyncAlways)
	c := newCast(t, srv.ClientURL())
	n := c.join(1)
	defer c.stop(n)
	require.NoError(t, n.Append(t.Context(), pushOf("e", 0)))
	c.elsewhere.Store(true)
	waiting.Until(t, n.isStale)
	require.ErrorIs(t, n.Append(t.Context(), pushOf("e", 1)), ErrUnavailable)
	c.elsewhere.Store(false)
	waiting.Until(t, func() bool { return n.Append(t.Context(), pushOf("e", 1)) == nil })
}

// A relay is frozen in the middle of an append, and the journal is moved away. What it stores when it
// goes on is not acknowledged, so that the sender sends it to the new place.
func TestAnAppendOfAFrozenRelayIsNotAcknowledged(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	srv := natstest.Run(t, dir, natstest.SyncAlways)
	at := natstest.Port(srv.Addr().(*net.TCPAddr).Port)
	c := newCast(t, srv.ClientURL())
	n := c.join(1)
	defer c.stop(n)
	require.NoError(t, n.Append(t.Context(), pushOf("e", 0)))
	natstest.Stop(srv)
	stored := make(chan error, 1)
	go func() { stored <- n.Append(t.Context(), pushOf("e", 1)) }()
	c.elsewhere.Store(true)
	waiting.Until(t, n.isStale)
	srv = natstest.Run(t, dir, natstest.SyncAlways, at)
	require.ErrorIs(t, <-stored, ErrUnavailable)
	info, err := natstest.JetStream(t, srv).Stream(t.Context(), "TEST_EVENTS")
	require.NoError(t, err)
	assert.EqualValues(t, 2, info.CachedInfo().State.LastSeq, "it was stored")
}

// Two relays that both think they have control make one next layout.
func TestOneLayoutFollowsAnother(t *testing.T) {
	t.Parallel()
	srv := natstest.Run(t, t.TempDir(), natstest.SyncAlways)
	c := newCast(t, srv.ClientURL())
	n := c.join(2)
	defer c.stop(n)
	was, err := loadLayout(t.Context(), n.table)
	require.NoError(t, err)
	assert.Equal(t, 2, was.Shards, "the first relay of a cluster decides")
	require.NoError(t, was.replace(t.Context(), n.table, layout{Shards: 2, Next: 3}))
	require.ErrorIs(t, was.replace(t.Context(), n.table, layout{Shards: 5}), store.ErrConflict)
	is, err := loadLayout(t.Context(), n.table)
	require.NoError(t, err)
	assert.Equal(t, was.Number+1, is.Number)
	assert.Equal(t, 3, is.Logs)
}

// With one of two streams without an answer, environments of the other one are taken, and the relay
// stays ready.
func TestOneShardRefuses(t *testing.T) {
	t.Parallel()
	srv := natstest.Run(t, t.TempDir(), natstest.SyncAlways)
	c := newCast(t, srv.ClientURL())
	n := c.join(2)
	defer c.stop(n)
	var by [2]string
	for i := 0; by[0] == "" || by[1] == ""; i++ {
		environment := fmt.Sprintf("e%d", i)
		by[ShardOf(relay.SourceOf("p", environment), 2)] = environment
	}
	require.NoError(t, natstest.JetStream(t, srv).DeleteStream(t.Context(), "TEST_EVENTS_1"))
	require.ErrorIs(t, n.Append(t.Context(), pushOf(by[1], 0)), ErrUnavailable)
	require.NoError(t, n.Append(t.Context(), pushOf(by[0], 0)))
	_, remark, err := n.Ready(t.Context())
	require.NoError(t, err)
	assert.Contains(t, remark, "shard 1")
}

// The layout cannot be read any more, by bit rot or as the cluster lost it. The relay that has control
// writes it again, and one that starts reads all logs that there are, whatever it is configured with.
func TestALayoutThatTheTableLost(t *testing.T) {
	t.Parallel()
	srv := natstest.Run(t, t.TempDir(), natstest.SyncAlways)
	c := newCast(t, srv.ClientURL())
	rot := func() {
		_, err := natstest.JetStream(t, srv).Publish(t.Context(), "TEST_TABLE.key."+layoutKey, []byte("rot"))
		require.NoError(t, err)
	}
	n := c.join(2)
	n.take(&layout{Number: 9, Shards: 2, Logs: 2})
	rot()
	waiting.Until(t, func() bool {
		is, err := loadLayout(t.Context(), n.table)
		return err == nil && is.Number == 10 && is.Shards == 2
	}, "it is not written again")
	waiting.Until(t, func() bool { return c.layout().Number == 10 })
	c.kill(n)
	rot()
	n = c.join(1)
	assert.Len(t, n.Logs(), 2)
	c.stop(n)
}
