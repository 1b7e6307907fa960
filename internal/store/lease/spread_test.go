package lease

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/internal/store"
	"github.com/auditrelay/auditrelay/internal/store/disk"
)

// cluster is some relays in this process, on one table.
type cluster struct {
	t      *testing.T
	table  store.Table
	slow   time.Duration // what a write takes
	linger time.Duration // what the end of job-00 takes
	mu     sync.Mutex
	doing  map[string][]string // relays, by job
	twice  []string            // jobs that two relays did at a time
	writes map[string]int      // by relay
}

func newCluster(t *testing.T) *cluster {
	t.Helper()
	s, err := disk.Open(disk.Config{Dir: t.TempDir(), Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return &cluster{t: t, table: s.Table(), doing: map[string][]string{}, writes: map[string]int{}}
}

// cuttable is a relay's way to the table.
type cuttable struct {
	store.Table
	cut  chan struct{} // closed while it is cut
	slow time.Duration // what a write takes
}

func (c *cuttable) Put(ctx context.Context, key string, data []byte, if_ store.If) (uint64, error) {
	select {
	case <-c.cut:
		<-ctx.Done()
		return 0, store.ErrUnknown
	default:
		time.Sleep(c.slow)
		return c.Table.Put(ctx, key, data, if_)
	}
}

// join starts a relay. Leave ends it, and cut has nothing that it writes arrive.
func (c *cluster) join(name string, work []string) (leave, cut func()) {
	table := &cuttable{c.table, make(chan struct{}), c.slow}
	todo := map[string]Work{}
	for _, job := range work {
		todo[job] = func(ctx context.Context, turn *Turn) error { return c.work(ctx, name, job, turn.Guard()) }
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		ended <- Run(ctx, Options{Table: table, Name: name, Jobs: todo, Logger: slog.New(slog.DiscardHandler)})
	}()
	return func() { cancel(); require.NoError(c.t, <-ended) }, func() { close(table.cut) }
}

// work writes under the guard until the job ends.
func (c *cluster) work(ctx context.Context, name, job string, guard store.If) error {
	c.mu.Lock()
	c.doing[job] = append(c.doing[job], name)
	if len(c.doing[job]) > 1 {
		c.twice = append(c.twice, job)
	}
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.doing[job] = slices.DeleteFunc(c.doing[job], func(by string) bool { return by == name })
	}()
	for ctx.Err() == nil {
		if _, err := c.table.Put(ctx, "position/"+job, []byte(name), guard); err != nil {
			return err
		}
		c.mu.Lock()
		c.writes[name]++
		c.mu.Unlock()
		time.Sleep(100 * time.Millisecond)
	}
	if job == jobs(1)[0] {
		time.Sleep(c.linger)
	}
	return ctx.Err()
}

// shares are how many jobs each relay does.
func (c *cluster) shares() map[string]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := map[string]int{}
	for _, by := range c.doing {
		for _, name := range by {
			all[name]++
		}
	}
	return all
}

func TestJobsAreSpreadAndMoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		work := jobs(6)
		leave1, _ := c.join("a", work)
		time.Sleep(2 * time.Second)
		require.Equal(t, map[string]int{"a": 6}, c.shares())
		leave2, _ := c.join("b", work)
		leave3, cut3 := c.join("c", work)
		time.Sleep(20 * time.Second)
		require.Equal(t, map[string]int{"a": 2, "b": 2, "c": 2}, c.shares())
		leave2()
		require.Zero(t, c.shares()["b"], "a relay that has left does nothing any more")
		time.Sleep(time.Second)
		require.Equal(t, 6, c.shares()["a"]+c.shares()["c"], "within a second, all is done by others")
		time.Sleep(5 * time.Second)
		require.Equal(t, map[string]int{"a": 3, "c": 3}, c.shares())
		cut3()
		time.Sleep(DefaultTiming.Hold + time.Second)
		require.Zero(t, c.shares()["c"], "who is cut off stops by itself")
		time.Sleep(2 * time.Second)
		require.Equal(t, map[string]int{"a": 6}, c.shares())
		require.Empty(t, c.twice)
		leave3()
		leave1()
		require.Empty(t, c.shares())
	})
}

// Whoever leaves while its last heartbeat is under way tells the others all the same, who would
// wait for it otherwise.
func TestALeaveDuringAHeartbeat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		c.slow = 200 * time.Millisecond
		leave, _ := c.join("a", jobs(2))
		time.Sleep(3 * time.Second)
		for i := range 6 {
			leaveToo, _ := c.join("b", jobs(2))
			time.Sleep(5*time.Second + time.Duration(i)*140*time.Millisecond)
			require.Equal(t, map[string]int{"a": 1, "b": 1}, c.shares())
			leaveToo()
			time.Sleep(time.Second)
			require.Equal(t, map[string]int{"a": 2}, c.shares(), "leave %d", i)
		}
		leave()
	})
}

// What a leaving relay has given away already is done by others, while one of its jobs takes long
// to stop.
func TestALeaveWaitsForNoOtherJob(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		c.linger = 10 * time.Second
		leave1, _ := c.join("a", jobs(6))
		time.Sleep(2 * time.Second) // job-00 is not moved for balance: it is the first one
		leave2, _ := c.join("b", jobs(6))
		leave3, _ := c.join("c", jobs(6))
		time.Sleep(20 * time.Second)
		require.Equal(t, map[string]int{"a": 2, "b": 2, "c": 2}, c.shares())
		left := make(chan struct{})
		go func() { leave1(); close(left) }()
		time.Sleep(time.Second)
		require.Equal(t, 1, c.shares()["a"])
		require.Equal(t, 5, c.shares()["b"]+c.shares()["c"])
		<-left
		time.Sleep(time.Second)
		require.Equal(t, map[string]int{"b": 3, "c": 3}, c.shares())
		require.Empty(t, c.twice)
		leave2()
		leave3()
	})
}
