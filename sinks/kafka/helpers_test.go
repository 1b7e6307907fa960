package kafka

import (
	"bytes"
	"context"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/internal/routing/cloudevents"
	"github.com/auditrelay/auditrelay/internal/testbed/waiting"
	"github.com/auditrelay/auditrelay/relay"
)

const testTopic = "events"

// cluster is a fake Kafka cluster that speaks the real protocol.
type cluster struct {
	*kfake.Cluster

	gate *gate
}

func newCluster(t testing.TB, opts ...kfake.Opt) *cluster {
	t.Helper()
	g := &gate{conns: map[net.Conn]struct{}{}}
	c, err := kfake.NewCluster(append([]kfake.Opt{
		kfake.NumBrokers(1),
		kfake.SeedTopics(1, testTopic),
		kfake.ListenFn(g.listen),
	}, opts...)...)
	require.NoError(t, err)
	t.Cleanup(c.Close)
	return &cluster{Cluster: c, gate: g}
}

func (c *cluster) config() config.Kafka {
	return config.Kafka{Brokers: c.ListenAddrs(), Topic: testTopic}
}

// sink makes a sink for the cluster; change may alter its config.
func (c *cluster) sink(t testing.TB, change func(*config.Kafka)) *Sink {
	t.Helper()
	cfg := c.config()
	if change != nil {
		change(&cfg)
	}
	s, err := New(complete(t, cfg), Options{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

// complete fills in the defaults of a section, as the configuration does.
func complete(t testing.TB, cfg config.Kafka) config.Kafka {
	t.Helper()
	require.NoError(t, (&config.Sink{Name: "test", Kafka: &cfg}).Complete())
	return cfg
}

// records reads a whole topic, partition after partition.
func (c *cluster) records(t testing.TB, topic string, opts ...kgo.Opt) []*kgo.Record {
	t.Helper()
	offsets, want := map[int32]kgo.Offset{}, 0
	infos := c.PartitionInfos(topic)
	for _, p := range infos {
		if p.HighWatermark > 0 {
			offsets[p.Partition] = kgo.NewOffset().AtStart()
			want += int(p.HighWatermark)
		}
	}
	if want == 0 {
		return nil
	}
	client, err := kgo.NewClient(append(opts, kgo.SeedBrokers(c.ListenAddrs()...),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: offsets}))...)
	require.NoError(t, err)
	defer client.Close()
	ctx, cancel := context.WithTimeout(t.Context(), waiting.Stall)
	defer cancel()
	byPartition := make([][]*kgo.Record, len(infos))
	for got := 0; got < want; {
		fetches := client.PollFetches(ctx)
		require.NoError(t, fetches.Err())
		fetches.EachRecord(func(r *kgo.Record) {
			byPartition[r.Partition] = append(byPartition[r.Partition], r)
			got++
		})
	}
	var all []*kgo.Record
	for _, records := range byPartition {
		all = append(all, records...)
	}
	return all
}

// header returns a record's header. The record may have it only once.
func header(t testing.TB, r *kgo.Record, name string) string {
	t.Helper()
	value, seen := "", false
	for _, h := range r.Headers {
		if h.Key == name {
			require.False(t, seen, "header %s twice", name)
			value, seen = string(h.Value), true
		}
	}
	return value
}

// ids returns the ids of the events in binary and in batch mode.
func ids(t testing.TB, records []*kgo.Record) []string {
	t.Helper()
	var list []string
	for _, r := range records {
		if header(t, r, "content-type") != cloudevents.BatchMediaType {
			list = append(list, header(t, r, "ce_id"))
			continue
		}
		for _, e := range batched(t, r) {
			list = append(list, e.ID())
		}
	}
	return list
}

func idsOf(events []relay.Event) []string {
	list := make([]string, len(events))
	for i := range events {
		list[i] = events[i].ID
	}
	return list
}

// environmentIn returns an environment whose key goes to partition want of n.
func environmentIn(t testing.TB, want, n int) string {
	t.Helper()
	s := spread{}
	s.balancer = balancerNamed("murmur2")
	topic := &topic{}
	for i := range n {
		topic.partitions = append(topic.partitions, &partition{id: i})
		topic.ids = append(topic.ids, i)
	}
	for i := range 1000 {
		name := "env" + strings.Repeat("x", i)
		if s.choose(topic, []byte("acme/"+name)) == want {
			return "acme/" + name
		}
	}
	t.Fatal("no environment found")
	return ""
}

// gate stands between a client and brokers: while it is shut, they cannot be reached. It can
// swallow one answer.
type gate struct {
	mu      sync.Mutex
	shut    bool
	conns   map[net.Conn]struct{}
	swallow atomic.Bool
	twist   atomic.Pointer[func(answer []byte) []byte] // what brokers' answers become, with their length
}

// gatedConn is a broker's end of a connection.
type gatedConn struct {
	net.Conn

	gate *gate
}

func (c *gatedConn) Write(b []byte) (int, error) {
	if c.gate.swallow.CompareAndSwap(true, false) {
		_ = c.Close()
		return 0, net.ErrClosed
	}
	if twist := c.gate.twist.Load(); twist != nil {
		if _, err := c.Conn.Write((*twist)(bytes.Clone(b))); err != nil {
			return 0, err
		}
		return len(b), nil
	}
	return c.Conn.Write(b)
}

func (g *gate) listen(network, address string) (net.Listener, error) {
	l, err := net.Listen(network, address) //nolint:noctx // the fake's own signature
	return &gatedListener{Listener: l, gate: g}, err
}

func (g *gate) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.shut = true
	for c := range g.conns {
		_ = c.Close()
	}
	clear(g.conns)
}

func (g *gate) open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.shut = false
}

type gatedListener struct {
	net.Listener

	gate *gate
}

func (l *gatedListener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if l.admit(c) {
			return &gatedConn{c, l.gate}, nil
		}
		_ = c.Close()
	}
}

func (l *gatedListener) admit(c net.Conn) bool {
	l.gate.mu.Lock()
	defer l.gate.mu.Unlock()
	if !l.gate.shut {
		l.gate.conns[c] = struct{}{}
	}
	return !l.gate.shut
}
