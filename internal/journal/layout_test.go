package journal

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
)

// Each log gets its share of the environments. With a further log some move to it, and no other
// environment moves.
func TestEnvironmentsAreSpreadEvenly(t *testing.T) {
	t.Parallel()
	const sources = 10_000
	for shards := 1; shards < 8; shards++ {
		count := make([]int, shards+1)
		for i := range sources {
			source := fmt.Sprintf("/projects/p%d/environments/e%d", i/3, i)
			was, is := ShardOf(source, shards), ShardOf(source, shards+1)
			if was != is {
				assert.Equal(t, shards, is)
			}
			count[is]++
		}
		for shard, n := range count {
			assert.InEpsilon(t, sources/(shards+1), n, 0.1, "shard %d of %d", shard, shards+1)
		}
	}
}

// What was stored by an earlier version is where this one looks for it.
func TestAShardNeverChanges(t *testing.T) {
	t.Parallel()
	var shards []int
	for i := range 12 {
		shards = append(shards, ShardOf(fmt.Sprintf("/projects/shop/environments/e%d", i), 4))
	}
	assert.Equal(t, []int{0, 0, 0, 2, 2, 2, 2, 0, 3, 0, 3, 3}, shards)
}
