package cluster

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/internal/store"
	"github.com/auditrelay/auditrelay/internal/testbed/natstest"
	"github.com/auditrelay/auditrelay/internal/testbed/waiting"
)

// pace is between two steps of one part of a load. Without it the load takes the processor
// from the elections under test.
const pace = 5 * time.Millisecond

// load is the constant work of senders of single records and of several, of a reader, of
// values, and of a fenced log.
type load struct {
	t       *testing.T
	b       *backend
	log     *Log
	fenced  *Log
	cancel  context.CancelFunc
	running sync.WaitGroup

	mu    sync.Mutex // guards the fields below
	acked map[store.Pos]string
	seen  map[store.Pos]string
	steps [5]int // of senders, the sender of several, the reader, values, the fenced log
}

func startLoad(t *testing.T, b *backend) *load {
	t.Helper()
	l := &load{t: t, b: b, log: b.log(t, "events"), fenced: b.log(t, "fenced"), acked: map[store.Pos]string{}, seen: map[store.Pos]string{}}
	ctx, cancel := context.WithCancel(t.Context())
	l.cancel = cancel
	for p := range 3 {
		l.running.Go(func() { l.send(ctx, p) })
	}
	l.running.Go(func() { l.read(ctx) })
	l.running.Go(func() { l.put(ctx) })
	l.running.Go(func() { l.fence(ctx) })
	t.Cleanup(func() { cancel(); l.running.Wait() })
	return l
}

func (l *load) step(part int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.steps[part]++
}

// send appends texts, and the last sender several at once.
func (l *load) send(ctx context.Context, sender int) {
	for i := 0; ctx.Err() == nil; i++ {
		time.Sleep(pace)
		drafts := []store.Draft{{Data: fmt.Appendf(nil, "%d/%d/0", sender, i)}}
		if sender == 2 {
			drafts = append(drafts, store.Draft{Data: fmt.Appendf(nil, "%d/%d/1", sender, i)})
		}
		first, err := l.log.Append(context.Background(), drafts...)
		if err != nil {
			assert.ErrorIs(l.t, err, store.ErrUnknown)
			continue
		}
		l.mu.Lock()
		for k := range drafts {
			pos := first + store.Pos(k)
			assert.NotContains(l.t, l.acked, pos)
			l.acked[pos] = string(drafts[k].Data)
		}
		l.steps[sender/2]++
		l.mu.Unlock()
	}
}

func (l *load) read(ctx context.Context) {
	next := store.Pos(1)
	for item, err := range l.log.Read(ctx, 1, true) {
		if err != nil {
			return
		}
		if !assert.Nil(l.t, item.Gap, "nothing was lost") {
			return
		}
		assert.Equal(l.t, next, item.Record.Pos)
		next = item.Record.Pos + 1
		l.mu.Lock()
		l.seen[item.Record.Pos] = string(item.Record.Data)
		l.steps[2]++
		l.mu.Unlock()
	}
}

// put counts in a value, by conditional puts.
func (l *load) put(ctx context.Context) {
	table := l.b.Table()
	for i := uint64(1); ctx.Err() == nil; {
		time.Sleep(pace)
		v, err := table.Get(context.Background(), "count")
		if err != nil {
			continue
		}
		var is uint64
		_, _ = fmt.Sscan(string(v.Data), &is)
		if is == i { // an earlier put whose answer did not come
			i++
			l.step(3)
			continue
		}
		if !assert.Equal(l.t, i-1, is, "no put is lost, and none is done twice") {
			return
		}
		if _, err = table.Put(context.Background(), "count", fmt.Append(nil, i), store.If{Key: "count", Rev: v.Rev}); err == nil {
			i++
			l.step(3)
		}
		assert.NoError(l.t, table.PutLazy(context.Background(), "lazy", fmt.Append(nil, i), store.If{}))
	}
}

// fence appends to a log whose end it knows.
func (l *load) fence(ctx context.Context) {
	for end := store.Pos(0); ctx.Err() == nil; {
		time.Sleep(pace)
		first, err := l.fenced.AppendAt(context.Background(), end, store.Draft{Data: fmt.Append(nil, end+1)})
		if err == nil {
			assert.Equal(l.t, end+1, first)
			end = first
			l.step(4)
			continue
		}
		state, err := l.fenced.State(context.Background())
		if err == nil && state.End > end { // the answer did not come
			assert.Equal(l.t, end+1, state.End)
			end = state.End
		}
	}
}

// goesOn waits until every part of it has got on.
func (l *load) goesOn() {
	l.t.Helper()
	count := func() [5]int {
		l.mu.Lock()
		defer l.mu.Unlock()
		return l.steps
	}
	before := count()
	waiting.While(l.t, func() any { return count() }, func() bool {
		for i, n := range count() {
			if n < before[i]+5 {
				return false
			}
		}
		return true
	}, "something stands still: senders, sender of several, reader, values, fenced log")
}

// end stops it, and compares.
func (l *load) end() {
	t := l.t
	t.Helper()
	state, err := l.log.State(t.Context())
	require.NoError(t, err)
	waiting.While(t, func() any { l.mu.Lock(); defer l.mu.Unlock(); return len(l.seen) }, func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		return store.Pos(len(l.seen)) >= state.End
	}, "the reader does not come to the end")
	l.cancel()
	l.running.Wait()
	records, gaps := read(t, l.log, 1)
	assert.Empty(t, gaps)
	for pos, text := range l.acked {
		assert.Equal(t, text, records[pos])
	}
	for pos, text := range l.seen {
		assert.Equal(t, text, records[pos])
	}
	assert.Empty(t, l.log.meta().Turns, "nothing was lost")
	records, gaps = read(t, l.fenced, 1)
	assert.Empty(t, gaps)
	for pos, text := range records {
		assert.Equal(t, fmt.Sprint(pos), text)
	}
	require.NoError(t, l.b.store.table.Sync(t.Context()))
}

// stepDown makes the leader of a stream hand over.
func stepDown(t *testing.T, b *backend, stream string) {
	t.Helper()
	waiting.Until(t, func() bool {
		m, err := b.store.js.Conn().Request("$JS.API.STREAM.LEADER.STEPDOWN."+stream, nil, 2*time.Second)
		return err == nil && strings.Contains(string(m.Data), `"success":true`)
	}, "%s", stream)
}

// leaderOf is the node that leads a stream.
func leaderOf(t *testing.T, c *natstest.Cluster, stream string) (node int) {
	t.Helper()
	waiting.Until(t, func() bool {
		var err error
		node, err = c.Leader(t.Context(), stream)
		return err == nil
	}, "stream %s has no leader", stream)
	return node
}

// As long as a cluster has a quorum, everything goes on, whatever else changes or goes away,
// and nothing is lost, given twice, or named as lost.
func TestLeadersComeAndGo(t *testing.T) {
	t.Parallel()
	c := startCluster(t)

	t.Run("leaders step down", func(t *testing.T) {
		b := newBackend(t, c.URL, 3)
		l := startLoad(t, b)
		l.goesOn()
		for range 2 {
			for _, stream := range []string{l.log.stream, l.fenced.stream, b.store.table.stream} {
				stepDown(t, b, stream)
				l.goesOn()
			}
		}
		l.end()
	})

	t.Run("the leader is killed", func(t *testing.T) {
		b := newBackend(t, c.URL, 3)
		l := startLoad(t, b)
		l.goesOn()
		leader := leaderOf(t, c, l.log.stream)
		c.Kill(leader)
		l.goesOn()
		require.NoError(t, c.Restart(t.Context(), leader))
		l.goesOn()
		l.end()
	})

	t.Run("a node is frozen", func(t *testing.T) {
		b := newBackend(t, c.URL, 3)
		l := startLoad(t, b)
		l.goesOn()
		name := b.store.js.Conn().ConnectedServerName()
		frozen, err := c.Named(name)
		require.NoError(t, err)
		require.NoError(t, c.Freeze(frozen))
		defer func() { require.NoError(t, c.Thaw(frozen)) }()
		l.goesOn()
		assert.NotEqual(t, name, b.store.js.Conn().ConnectedServerName())
		require.NoError(t, c.Thaw(frozen))
		l.goesOn()
		l.end()
	})

	t.Run("two take over from each other", func(t *testing.T) {
		b := newBackend(t, c.URL, 3)
		r := race(t, b, b.another(t))
		r.goesOn()
		for range 3 {
			stepDown(t, b, b.store.table.stream)
			r.goesOn()
		}
		leader := leaderOf(t, c, b.store.table.stream)
		c.Kill(leader)
		r.goesOn()
		require.NoError(t, c.Restart(t.Context(), leader))
		r.goesOn()
		r.end()
	})

	t.Run("without a quorum", func(t *testing.T) {
		b := newBackend(t, c.URL, 3)
		b.store.patience = time.Second
		l := b.log(t, "events")
		first := insist(t, l, 0, 3)
		c.Kill(1)
		c.Kill(2)
		_, err := l.Append(t.Context(), store.Draft{Data: []byte("perhaps")})
		require.ErrorIs(t, err, store.ErrUnknown)
		require.NoError(t, c.Restart(t.Context(), 1))
		more := insist(t, l, 100, 3)
		require.NoError(t, c.Restart(t.Context(), 2))
		waiting.Until(t, func() bool { // the table's leader may be new, too
			for _, err := range l.Read(t.Context(), 1, false) {
				if err != nil {
					return false
				}
			}
			return true
		})
		records, gaps := read(t, l, 1)
		assert.Empty(t, gaps)
		for pos, text := range merged(t, first, more) {
			assert.Equal(t, text, records[pos])
		}
	})
}

// contest is two relays that take a job over from each other all the time, and write under each
// epoch that they have got.
type contest struct {
	t       *testing.T
	cancel  context.CancelFunc
	running sync.WaitGroup

	mu        sync.Mutex        // guards the fields below
	epochs    map[uint64]uint64 // revisions, by number
	positions map[uint64]uint64 // numbers of the epochs that they were written under, by revision
}

func race(t *testing.T, relays ...*backend) *contest {
	c := &contest{t: t, epochs: map[uint64]uint64{}, positions: map[uint64]uint64{}}
	ctx, cancel := context.WithCancel(t.Context())
	c.cancel = cancel
	for i, b := range relays {
		c.running.Go(func() { c.contend(ctx, b.Table(), i) })
	}
	t.Cleanup(func() { cancel(); c.running.Wait() })
	return c
}

// contend takes the job over, and reads whether it has where nobody says so.
func (c *contest) contend(ctx context.Context, table store.Table, relay int) {
	for next := uint64(0); ctx.Err() == nil; {
		time.Sleep(pace)
		v, err := table.Get(context.Background(), "epoch")
		if err != nil {
			continue
		}
		var number uint64
		var holder int
		_, _ = fmt.Sscan(string(v.Data), &number, &holder)
		if number == next && holder == relay && number > 0 {
			c.hold(table, number, v.Rev)
		}
		next = number + 1
		rev, err := table.Put(context.Background(), "epoch", fmt.Append(nil, next, " ", relay), store.If{Key: "epoch", Rev: v.Rev})
		if err == nil {
			c.hold(table, next, rev)
			next = 0
		}
	}
}

// hold writes positions under an epoch, until somebody else has replaced it.
func (c *contest) hold(table store.Table, number, rev uint64) {
	c.mu.Lock()
	was, twice := c.epochs[number]
	c.epochs[number] = rev
	c.mu.Unlock()
	assert.False(c.t, twice, "the epoch %d has two holders, with the revisions %d and %d", number, was, rev)
	for i := range 5 {
		at, err := table.Put(context.Background(), "position", fmt.Append(nil, number, "/", i), store.If{Key: "epoch", Rev: rev})
		if err != nil {
			return
		}
		c.mu.Lock()
		c.positions[at] = number
		c.mu.Unlock()
	}
}

func (c *contest) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.epochs)
}

func (c *contest) goesOn() {
	c.t.Helper()
	before := c.count()
	waiting.While(c.t, func() any { return c.count() }, func() bool { return c.count() >= before+5 }, "nobody takes over")
}

// end stops it, and looks whether each position was written before the next epoch.
func (c *contest) end() {
	c.cancel()
	c.running.Wait()
	assert.NotEmpty(c.t, c.positions)
	for at, number := range c.positions {
		assert.Greater(c.t, at, c.epochs[number])
		for later, rev := range c.epochs {
			assert.False(c.t, later > number && rev < at, "a position of the epoch %d at %d, after the epoch %d at %d", number, at, later, rev)
		}
	}
}

// A leader that is cut off answers as it knew a stream until it steps down. That is no word of the cluster's.
func TestALeaderThatIsCutOffIsKnown(t *testing.T) {
	t.Parallel()
	c := startCluster(t)
	b := newBackend(t, c.URL, 3)
	stream := b.store.table.stream
	_, err := b.Table().Put(t.Context(), "a", []byte("1"), store.If{})
	require.NoError(t, err)
	old := &Store{js: b.store.js, log: b.store.log, ctx: b.store.ctx} // it asks a question once
	var answered bool
	believed := func() bool {
		info, err := old.info(t.Context(), stream)
		answered = err == nil
		return answered && leads(info)
	}
	waiting.Until(t, believed, "it hears from the others")
	leader := leaderOf(t, c, stream)
	for i := range natstest.Nodes {
		if i != leader {
			c.Kill(i)
		}
	}
	waiting.Until(t, func() bool { return !believed() && answered }, "it answers, and is not believed")
}
