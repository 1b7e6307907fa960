package journal

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/internal/journal/record"
	"github.com/auditrelay/auditrelay/internal/retry"
	"github.com/auditrelay/auditrelay/internal/store/cluster"
	"github.com/auditrelay/auditrelay/internal/store/lease"
	"github.com/auditrelay/auditrelay/internal/testbed/waiting"
	"github.com/auditrelay/auditrelay/relay"
)

// node is what a relay has of the journal: it takes events, has its part of the sinks' jobs, and may
// have control.
type node struct {
	*Set
	store *cluster.Store
	leave context.CancelFunc
	done  chan struct{} // closed once it takes no part any more
}

var sinkNames = []string{"a", "b"}

// cast is some relays on one cluster, and what their sinks got.
type cast struct {
	t         *testing.T
	url       string
	elsewhere atomic.Bool // the journal was moved away

	mu        sync.Mutex // guards the fields below
	nodes     []*node
	next      map[string]int // by environment, what its sender sends next
	delivered map[string]int // by sink and environment, what comes next
	again     int            // events that were delivered before
	held      []int          // the shards of which the last sink takes nothing
}

func newCast(t *testing.T, url string) *cast {
	return &cast{t: t, url: url, next: map[string]int{}, delivered: map[string]int{}}
}

// join starts a relay with a configured number of shards.
func (c *cast) join(shards int) *node {
	t, log, reg := c.t, slog.New(slog.DiscardHandler), prometheus.NewRegistry()
	cfg := config.Journal{URL: c.url, StreamPrefix: "TEST", Shards: shards, Replicas: 1, MaxBytes: 64 << 20, ReplayWindow: time.Hour}
	s, err := cluster.Open(t.Context(), cluster.Config{Journal: cfg, Dir: t.TempDir(), Version: "test", Logger: log, Registerer: reg})
	require.NoError(t, err)
	names, err := OpenQuarantine(t.Context(), s, QuarantineOptions{Logger: log, Registerer: reg})
	require.NoError(t, err)
	set, err := Open(t.Context(), s, cfg, Options{
		Logger: log, Registerer: reg, Quarantine: names, Sinks: sinkNames, Shared: true,
		Others: func([]relay.Event, uint64) {}, Epoch: func() uint64 { return 0 }, Failed: func(error) {}, Check: c.check,
	})
	require.NoError(t, err)
	set.stale = 3 * time.Second
	n := &node{Set: set, store: s, done: make(chan struct{})}
	jobs := map[string]lease.Work{"control": func(ctx context.Context, turn *lease.Turn) error {
		set.TrimUnder(turn)
		set.Lead(ctx, func(ctx context.Context) ([]lease.Relay, error) {
			now, err := lease.State(ctx, s.Table())
			return now.Relays, err
		})
		return ctx.Err()
	}}
	for _, sink := range sinkNames {
		for shard, j := range set.Logs() {
			jobs[fmt.Sprintf("sink/%s/%d", sink, shard)] = func(ctx context.Context, turn *lease.Turn) error { return c.deliver(ctx, j, shard, sink, turn) }
		}
	}
	var life context.Context
	life, n.leave = context.WithCancel(context.Background())
	go func() {
		defer close(n.done)
		_ = lease.Run(life, lease.Options{Table: s.Table(), Name: "r", Jobs: jobs, Sticky: []string{"control"}, Logger: log, Says: set.Says})
		set.Close()
		assert.NoError(t, names.Close())
		_ = s.Close()
	}()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.nodes = append(c.nodes, n)
	return n
}

func (c *cast) check(context.Context) error {
	if c.elsewhere.Load() {
		return assert.AnError
	}
	return nil
}

// remove has a relay taken out of the load balancer.
func (c *cast) remove(n *node) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range c.nodes {
		if c.nodes[i] == n {
			c.nodes = append(c.nodes[:i:i], c.nodes[i+1:]...)
			return
		}
	}
}

// stop ends a relay as an operator does.
func (c *cast) stop(n *node) {
	c.remove(n)
	n.leave()
	<-n.done
}

// kill ends it where it stands: nothing that it has under way reaches the cluster.
func (c *cast) kill(n *node) {
	c.remove(n)
	_ = n.store.Close()
	n.leave()
	<-n.done
}

// deliver is the job of a sink.
func (c *cast) deliver(ctx context.Context, j *Journal, shard int, sink string, turn *lease.Turn) error {
	s, err := j.SourceUnder(ctx, turn, sink, relay.BatchLimit{Events: 100, Bytes: 1 << 20})
	if err != nil {
		return err
	}
	defer s.Close()
	for {
		b, err := s.Next(ctx)
		if err != nil {
			return err
		}
		for sink == sinkNames[len(sinkNames)-1] && c.holds(shard) {
			if err := retry.Sleep(ctx, 10*time.Millisecond); err != nil {
				return err
			}
		}
		for i := range b.Events {
			c.got(sink, &b.Events[i])
		}
		if err := s.Ack(ctx, b.Position); err != nil {
			return err
		}
	}
}

func (c *cast) holds(shard int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Contains(c.held, shard)
}

// hold has the last sink take nothing of some shards, and go on with the others.
func (c *cast) hold(shards ...int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.held = shards
}

// got notes an event at a sink, which has had all of its environment's before it.
func (c *cast) got(sink string, e *relay.Event) {
	var n int
	_, err := fmt.Sscanf(e.ID, e.Environment+"-%d", &n)
	assert.NoError(c.t, err)
	c.mu.Lock()
	defer c.mu.Unlock()
	key := sink + " " + e.Environment
	if n < c.delivered[key] {
		c.again++
		return
	}
	assert.Equal(c.t, c.delivered[key], n, "%s gets the events of %s in another order", sink, e.Environment)
	c.delivered[key] = n + 1
}

// sendFrom has so many environments send until ctx ends, and returns once it is under way. The group
// is for waiting until they have stopped.
func (c *cast) sendFrom(ctx context.Context, environments int) *sync.WaitGroup {
	var sending sync.WaitGroup
	for i := range environments {
		environment := fmt.Sprintf("e%d", i)
		c.next[environment] = 0
		sending.Go(func() { c.send(ctx, environment) })
	}
	c.goesOn()
	return &sending
}

// send has an environment push one event after the other until ctx ends.
func (c *cast) send(ctx context.Context, environment string) {
	for ctx.Err() == nil {
		c.push(environment)
	}
}

// push has an environment push its next event, each time to any relay, until it is acknowledged.
func (c *cast) push(environment string) {
	c.mu.Lock()
	n := c.next[environment]
	c.mu.Unlock()
	for {
		if to := c.some(); to != nil && to.Append(context.Background(), pushOf(environment, n)) == nil {
			break
		}
		time.Sleep(10 * time.Millisecond) // as a sender that is told to try again
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.next[environment] = n + 1
}

// some is one of the relays that take pushes; nil if there are none.
func (c *cast) some() *node {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.nodes) == 0 {
		return nil
	}
	return c.nodes[rand.IntN(len(c.nodes))]
}

// pushOf is an environment's n-th event.
func pushOf(environment string, n int) *record.Batch {
	var b record.Batch
	b.AddEvent(&relay.Event{
		ID: fmt.Sprintf("%s-%d", environment, n), Source: relay.SourceOf("p", environment), Project: "p", Environment: environment,
		Type: "event_log.test", Time: time.Now(), Received: time.Now(), ContentType: "text/plain", Body: []byte("x"),
	})
	return &b
}

// layout is the present one at a relay.
func (c *cast) layout() layout {
	c.mu.Lock()
	n := c.nodes[0]
	c.mu.Unlock()
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.now.layout
}

// becomes waits until a number of shards counts, and all environments push on.
func (c *cast) becomes(shards int) {
	c.t.Helper()
	waiting.Until(c.t, func() bool { l := c.layout(); return l.Shards == shards && l.Next == 0 }, "the number of shards does not become %d", shards)
	goal := c.more()
	waiting.Until(c.t, func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		for environment, n := range goal {
			if c.next[environment] < n {
				return false
			}
		}
		return true
	}, "not all environments push on")
}

// more is a little more than each environment has pushed.
func (c *cast) more() map[string]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	goal := map[string]int{}
	for environment, n := range c.next {
		goal[environment] = n + 5
	}
	return goal
}

// goesOn waits until each environment has pushed more, and each sink has got that.
func (c *cast) goesOn() {
	c.t.Helper()
	c.sinksHave(c.more())
}

// sinksHave waits until each sink has had so many events of each environment.
func (c *cast) sinksHave(goal map[string]int) {
	c.t.Helper()
	sum := func() any {
		c.mu.Lock()
		defer c.mu.Unlock()
		all := 0
		for _, n := range c.delivered {
			all += n
		}
		return all
	}
	waiting.While(c.t, sum, func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		for environment, n := range goal {
			for _, sink := range sinkNames {
				if c.delivered[sink+" "+environment] < n {
					return false
				}
			}
		}
		return true
	}, "the sinks do not get on")
}
