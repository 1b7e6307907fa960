package lease

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/internal/store"
)

// What the table says of the cluster is what its relays do.
func TestStateSaysWhoDoesWhat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		s, err := State(t.Context(), c.table)
		require.NoError(t, err)
		assert.Empty(t, s.Relays)
		assert.Empty(t, s.Jobs)

		work := jobs(4)
		leave1, _ := c.join("a", work)
		leave2, _ := c.join("b", work)
		time.Sleep(20 * time.Second)
		s, err = State(t.Context(), c.table)
		require.NoError(t, err)
		require.Len(t, s.Relays, 2)
		require.Len(t, s.Jobs, len(work))
		held := map[string]int{}
		for _, job := range s.Jobs {
			assert.Contains(t, work, job.Name)
			assert.Positive(t, job.Epoch)
			assert.Positive(t, job.Rev)
			assert.False(t, job.Since.IsZero())
			held[job.Holder]++
		}
		for _, relay := range s.Relays {
			assert.Equal(t, 2, held[relay.Name], relay.Name)
			assert.WithinDuration(t, time.Now(), relay.Heartbeat, 2*DefaultTiming.Beat)
		}

		leave1()
		leave2()
		s, err = State(t.Context(), c.table)
		require.NoError(t, err)
		assert.Empty(t, s.Relays, "who has left is none of the relays")
		for _, job := range s.Jobs {
			assert.Empty(t, job.Holder, job.Name)
		}
	})
}

// Values that cannot be read are shown as far as their keys say what they are.
func TestStateOfValuesThatCannotBeRead(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	for _, key := range []string{epochKey + "x", beatKey + "y"} {
		_, err := c.table.Put(t.Context(), key, []byte("{"), store.If{})
		require.NoError(t, err)
	}
	s, err := State(t.Context(), c.table)
	require.NoError(t, err)
	require.Len(t, s.Relays, 1)
	assert.Equal(t, "y", s.Relays[0].Name)
	require.Len(t, s.Jobs, 1)
	assert.Equal(t, "x", s.Jobs[0].Name)
	assert.Empty(t, s.Jobs[0].Holder)
}

// Whoever is alone with a table is told so, and a relay that was only frozen is dead from then on.
func TestAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		_, err := c.table.Put(t.Context(), beatKey+"frozen", []byte("{}"), store.If{})
		require.NoError(t, err)
		leave, _ := c.join("a", jobs(1))
		time.Sleep(time.Second)
		others, err := Alone(t.Context(), c.table, 2*DefaultTiming.Beat)
		require.NoError(t, err)
		require.Len(t, others, 1)
		assert.Contains(t, others[0], "a.")
		frozen, err := c.table.Get(t.Context(), beatKey+"frozen")
		require.NoError(t, err)
		assert.False(t, beatOf(frozen).Dead, "it is not alone, and does nothing")
		leave()
		epoch, err := c.table.Get(t.Context(), epochKey+jobs(1)[0])
		require.NoError(t, err)
		require.NotZero(t, epoch.Rev)

		others, err = Alone(t.Context(), c.table, DefaultTiming.Dead)
		require.NoError(t, err)
		assert.Empty(t, others)
		frozen, err = c.table.Get(t.Context(), beatKey+"frozen")
		require.NoError(t, err)
		assert.True(t, beatOf(frozen).Dead)
		_, err = c.table.Put(t.Context(), epoch.Key, []byte("{}"), store.If{Key: epoch.Key, Rev: epoch.Rev})
		require.ErrorIs(t, err, store.ErrConflict, "the frozen one was about to take the job")
		released, err := c.table.Get(t.Context(), epoch.Key)
		require.NoError(t, err)
		e, err := epochOf(released)
		require.NoError(t, err)
		assert.Empty(t, e.Holder)
		assert.NotZero(t, e.Number)
	})
}
