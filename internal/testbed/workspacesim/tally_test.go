package workspacesim

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestTally(t *testing.T) {
	t.Parallel()
	var tally Tally
	a, b := "event-log-a.live-1-", "event-log-b.live-1-"
	for _, seq := range []uint64{0, 1, 63, 64, 5000, 64} {
		assert.True(t, tally.Add(EventID(a, seq)))
	}
	assert.True(t, tally.Add(EventID(b, 2)))
	assert.False(t, tally.Add("something-else"))
	assert.Equal(t, int64(6), tally.Unique)
	assert.Equal(t, int64(1), tally.Duplicates)
	assert.Equal(t, int64(0), tally.Missing([]Ledger{{Prefix: a, Acknowledged: []Range{{0, 2}, {63, 65}, {5000, 5001}}}}))
	assert.Equal(t, int64(2+1+1), tally.Missing([]Ledger{
		{Prefix: a, Acknowledged: []Range{{0, 4}, {6000, 6001}}}, // 2, 3 and 6000
		{Prefix: b, Acknowledged: []Range{{1, 3}}},               // 1
	}))
}
