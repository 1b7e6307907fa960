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

	"github.com/auditrelay/auditrelay/internal/realservers"
)

// leaderless has the relay's journal on three real servers. Kafka is behind, and
// the server that leads its position is killed shortly before each trim:
// what Kafka has not had must stay.
func leaderless(ctx context.Context, t *trial) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	servers, err := realservers.StartNATS(ctx, realservers.NATSOptions{
		Command: []string{self, natsCommand}, Dir: filepath.Join(t.dir, "journal"),
	})
	if err != nil {
		return err
	}
	defer servers.Close()
	s, err := t.newScene(ctx, setting{
		// Everything that every sink has is beyond the replay window at each trim.
		rate: t.rate / 8, more: fmt.Sprintf("journal: {url: %q, replay_window: 1s}\n", servers.URL),
	})
	if err != nil {
		return err
	}
	defer s.close()
	s.kafkaProxy.set(fault{refuse: true})
	if err := s.startReady(ctx); err != nil {
		return err
	}
	l := &leaders{scene: s, servers: servers, began: time.Now()}
	if err := l.killBeforeTrims(ctx); err != nil {
		return fmt.Errorf("%w; the servers said: %s", err, servers.Tails())
	}
	s.kafkaProxy.set(fault{})
	return s.settle(ctx)
}

// leaders is a scene whose journal is on servers that are killed.
type leaders struct {
	*scene
	servers *realservers.NATS
	began   time.Time // when the relay was ready: it trims a minute later, and so on
}

func (l *leaders) killBeforeTrims(ctx context.Context) error {
	const between, before, gone = time.Minute, 4 * time.Second, 15 * time.Second
	for range 3 {
		l.t.row.rounds++
		if err := l.hold(ctx, time.Until(l.began.Add(time.Duration(l.t.row.rounds)*between-before))); err != nil {
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
		if err := l.servers.WaitInSync(ctx, "AUDITRELAY_EVENTS", spending); err != nil {
			return err
		}
	}
	return nil
}

// leading is the server that leads the position of Kafka, and not the stream: a
// stream without a leader is not trimmed anyway.
func (l *leaders) leading(ctx context.Context) (int, error) {
	conn, err := nats.Connect(l.servers.URL)
	if err != nil {
		return 0, fmt.Errorf("ask who leads: %w", err)
	}
	defer conn.Close()
	js, err := jetstream.New(conn)
	if err != nil {
		return 0, fmt.Errorf("ask who leads: %w", err)
	}
	name := ""
	if err := l.until(ctx, spending, "somebody leads the position of Kafka", func() bool {
		c, err := js.Consumer(ctx, "AUDITRELAY_EVENTS", "sink_kafka")
		if err != nil || c.CachedInfo().Cluster == nil {
			return false
		}
		name = c.CachedInfo().Cluster.Leader
		events, err := js.Stream(ctx, "AUDITRELAY_EVENTS")
		if err != nil || name == "" || events.CachedInfo().Cluster == nil {
			return false
		}
		if events.CachedInfo().Cluster.Leader == name {
			_, _ = conn.Request("$JS.API.STREAM.LEADER.STEPDOWN.AUDITRELAY_EVENTS", nil, time.Second) // the next look tells
			return false
		}
		return true
	}); err != nil {
		return 0, err
	}
	for i := range l.servers.Nodes() {
		if l.servers.Name(i) == "nats-server "+name {
			return i, nil
		}
	}
	return 0, fmt.Errorf("ask who leads: there is no server %s", name)
}

// natsCommand is how this program starts itself as a server.
const natsCommand = "nats-server"

func newNATSCommand() *cobra.Command {
	return &cobra.Command{
		Use: natsCommand + " FILE", Hidden: true, Args: cobra.ExactArgs(1),
		Short: "Run one nats-server by a configuration file",
		RunE:  func(_ *cobra.Command, args []string) error { return realservers.RunNATS(args[0]) },
	}
}
