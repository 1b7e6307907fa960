package journal

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/internal/testbed/natstest"
	"github.com/auditrelay/auditrelay/internal/testbed/waiting"
	"github.com/auditrelay/auditrelay/relay"
)

// What all sinks have had goes from every shard once its replay window has passed. What one sink
// of one shard lacks stays, also while the environments are being spread over fewer shards.
func TestEveryShardIsTrimmed(t *testing.T) {
	t.Parallel()
	srv := natstest.Run(t, t.TempDir(), natstest.SyncAlways)
	c := newCast(t, srv.ClientURL())
	first, second := c.join(3), c.join(3)
	by := environmentsOf(3)

	c.pushEach(by, 3)
	c.sinksHave(c.next)
	window := time.Now()
	c.pushEach(by, 2)
	c.sinksHave(c.next)
	c.trimsTo(window, 4, 4, 4)

	future := window.Add(time.Hour)
	c.hold(1)
	c.pushEach(by, 4)
	c.lacks(1, 9, 5)
	c.trimsTo(future, 10, 6, 10)
	c.hold()
	c.sinksHave(c.next)
	c.trimsTo(future, 10, 10, 10)

	c.hold(2)
	c.pushEach(by, 1)
	c.lacks(2, 10, 9)
	third, fourth := c.join(2), c.join(2)
	c.stop(first)
	c.stop(second)
	waiting.Until(t, func() bool {
		c.trim(future)
		c.lacks(2, 10, 9)
		l := c.layout()
		return l.Shards == 2 && l.Next == 0
	}, "the number of shards does not change")
	to := ShardOf(relay.SourceOf("p", by[2]), 2)
	c.push(by[2]) // the last sink is not given it before it has had what is in the shard 2
	c.lacks(to, 11, 10)
	c.trimsTo(future, 11, 11, 10)
	c.hold()
	c.sinksHave(c.next)
	want := []uint64{11, 11, 11}
	want[to]++
	c.trimsTo(future, want...)
	assert.Zero(t, c.again)
	c.stop(third)
	c.stop(fourth)
}

// environmentsOf are one environment for each of so many shards.
func environmentsOf(shards int) []string {
	by := make([]string, shards)
	for i, found := 0, 0; found < shards; i++ {
		environment := fmt.Sprintf("e%d", i)
		if shard := ShardOf(relay.SourceOf("p", environment), shards); by[shard] == "" {
			by[shard], found = environment, found+1
		}
	}
	return by
}

// pushEach has each environment push n events.
func (c *cast) pushEach(environments []string, n int) {
	for _, environment := range environments {
		for range n {
			c.push(environment)
		}
	}
}

// lacks waits until all relays see that of a shard's records the first sink has had so many, and
// the last one fewer.
func (c *cast) lacks(shard int, had, fewer uint64) {
	c.t.Helper()
	waiting.Until(c.t, func() bool {
		for _, n := range c.nodes {
			a, known, err := n.Logs()[shard].Acknowledged(c.t.Context(), sinkNames[0])
			b, too, failed := n.Logs()[shard].Acknowledged(c.t.Context(), sinkNames[1])
			if err != nil || failed != nil || !known || !too || a != had || b != fewer {
				return false
			}
		}
		return true
	}, "the sinks do not come to %d and %d in the shard %d", had, fewer, shard)
}

// trim does what each relay does from time to time.
func (c *cast) trim(before time.Time) {
	for _, n := range c.nodes {
		for _, j := range n.Logs() {
			if _, err := j.Trim(c.t.Context(), before); err != nil {
				c.t.Log("a trim failed, and is tried again:", err)
			}
		}
	}
}

// trimsTo waits until the shards begin with these records, and sees that no more is trimmed.
func (c *cast) trimsTo(before time.Time, want ...uint64) {
	c.t.Helper()
	begin := func() []uint64 {
		c.trim(before)
		var all []uint64
		for _, j := range c.nodes[0].Logs() {
			first, _, err := j.Ends(c.t.Context())
			require.NoError(c.t, err)
			all = append(all, first)
		}
		return all
	}
	waiting.Until(c.t, func() bool {
		for shard, first := range begin() {
			if first < want[shard] {
				return false
			}
		}
		return true
	}, "the shards are not trimmed to %d", want)
	assert.Equal(c.t, want, begin())
}
