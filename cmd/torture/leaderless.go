package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"

	"github.com/auditrelay/auditrelay/internal/testbed/natstest"
)

// leaderless has the relay's journal on three real servers. After the first trim, Kafka
// falls behind, and the leader of its position is killed shortly before each further
// trim: the events Kafka lacks must stay.
func leaderless(ctx context.Context, t *trial) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	servers, err := natstest.StartCluster(ctx, natstest.Options{
		Command: []string{self, natsCommand}, Dir: filepath.Join(t.dir, "journal"),
	})
	if err != nil {
		return err
	}
	defer servers.Close()
	s, err := t.newScene(ctx, setting{
		// All fully delivered events are beyond the replay window at each trim.
		rate: t.rate / 8, more: fmt.Sprintf("journal: {url: %q, replay_window: 1s}\n", servers.URL),
	})
	if err != nil {
		return err
	}
	defer s.close()
	if err := s.startReady(ctx); err != nil {
		return err
	}
	l := &leaders{scene: s, servers: servers}
	if err := l.connected(ctx, l.killBeforeTrims); err != nil {
		return fmt.Errorf("%w; the servers said: %s", err, servers.Tails())
	}
	s.kafkaProxy.set(fault{})
	return s.settle(ctx)
}

// leaders is a scene with its journal on servers to be killed.
type leaders struct {
	*scene
	servers *natstest.Cluster
	conn    *nats.Conn
	js      jetstream.JetStream
}

// connected calls do with a connection to the servers.
func (l *leaders) connected(ctx context.Context, do func(context.Context) error) (err error) {
	if l.conn, err = nats.Connect(l.servers.URL, nats.MaxReconnects(-1), nats.ReconnectWait(100*time.Millisecond)); err != nil {
		return fmt.Errorf("connect to the servers: %w", err)
	}
	defer l.conn.Close()
	if l.js, err = jetstream.New(l.conn); err != nil {
		return fmt.Errorf("use JetStream: %w", err)
	}
	return do(ctx)
}

// trimmed waits until the relay trims its journal, as it does each minute.
func (l *leaders) trimmed(ctx context.Context) (time.Time, error) {
	err := l.until(ctx, spending, "the journal is trimmed", func() bool {
		events, err := l.js.Stream(ctx, journalStream)
		return err == nil && events.CachedInfo().State.FirstSeq > 1
	})
	return time.Now(), err
}

// journalStream is the relay's stream of events.
const journalStream = "AUDITRELAY_EVENTS"

func (l *leaders) killBeforeTrims(ctx context.Context) error {
	const between, before, gone = time.Minute, 2 * time.Second, 15 * time.Second
	last, err := l.trimmed(ctx)
	if err != nil {
		return err
	}
	l.kafkaProxy.set(fault{refuse: true})
	for range 2 {
		l.t.row.rounds++
		if err := l.hold(ctx, time.Until(last.Add(time.Duration(l.t.row.rounds)*between-before))); err != nil {
			return err
		}
		i, err := l.leading(ctx)
		if err != nil {
			return err
		}
		l.t.progress("%s is killed, which leads the position of Kafka", l.servers.Name(i))
		l.servers.Kill(i)
		if err := l.hold(ctx, gone); err != nil {
			return err
		}
		if err := l.servers.Restart(ctx, i); err != nil {
			return err
		}
		if err := l.servers.WaitInSync(ctx, journalStream, spending); err != nil {
			return err
		}
	}
	return nil
}

// leading is the leader of Kafka's position, and not of the stream: a stream without a
// leader is not trimmed anyway.
func (l *leaders) leading(ctx context.Context) (int, error) {
	name := ""
	if err := l.until(ctx, spending, "somebody leads the position of Kafka", func() bool {
		c, err := l.js.Consumer(ctx, journalStream, "sink_kafka")
		if err != nil || c.CachedInfo().Cluster == nil {
			return false
		}
		name = c.CachedInfo().Cluster.Leader
		events, err := l.js.Stream(ctx, journalStream)
		if err != nil || name == "" || events.CachedInfo().Cluster == nil {
			return false
		}
		if events.CachedInfo().Cluster.Leader == name {
			_, _ = l.conn.Request("$JS.API.STREAM.LEADER.STEPDOWN."+journalStream, nil, time.Second) // the next look tells
			return false
		}
		return true
	}); err != nil {
		return 0, err
	}
	return l.servers.Named(name)
}

// natsCommand is how this program starts itself as a server.
const natsCommand = "nats-server"

func newNATSCommand() *cobra.Command {
	return &cobra.Command{
		Use: natsCommand + " FILE", Hidden: true, Args: cobra.ExactArgs(1),
		Short: "Run one nats-server by a configuration file",
		RunE:  func(_ *cobra.Command, args []string) error { return natstest.RunNode(args[0]) },
	}
}
