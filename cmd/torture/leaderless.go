package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/auditrelay/auditrelay/internal/testbed/natstest"
)

// leaderless keeps the relay's journal on three real servers. After the first trim, Kafka falls
// back, and the leader of the table with its position is killed shortly before each further
// trim. The events that Kafka lacks must stay.
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
		// All fully delivered events are beyond the replay window at each trim, and in a span of the trail.
		rate: t.rate / 8, more: fmt.Sprintf("journal: {url: %q, replay_window: 1s}\naudit: {spans: {interval: 1s}}\n", servers.URL),
	})
	if err != nil {
		return err
	}
	defer s.close()
	if err := s.startReady(ctx); err != nil {
		return err
	}
	l := &leaders{scene: s, servers: servers}
	if err := l.killBeforeTrims(ctx); err != nil {
		return fmt.Errorf("%w; the servers said: %s", err, servers.Tails())
	}
	s.kafkaProxy.set(fault{})
	return s.settle(ctx)
}

// leaders is a scene whose journal is on servers that are killed.
type leaders struct {
	*scene
	servers *natstest.Cluster
}

// trimmed waits until the relay trims its journal, as it does each minute.
func (l *leaders) trimmed(ctx context.Context) (time.Time, error) {
	err := l.until(ctx, "the journal is trimmed", func() bool {
		events, err := l.servers.JetStream().Stream(ctx, journalStream)
		return err == nil && events.CachedInfo().State.FirstSeq > 1
	})
	return time.Now(), err
}

// The relay's streams: of its events, and of the table with the sinks' positions.
const (
	journalStream = "AUDITRELAY_EVENTS"
	tableStream   = "AUDITRELAY_TABLE"
)

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
		l.t.progress("%s is killed, which leads the table with the position of Kafka", l.servers.Name(i))
		l.servers.Kill(i)
		if err := l.hold(ctx, gone); err != nil {
			return err
		}
		if err := l.servers.Restart(ctx, i); err != nil {
			return err
		}
		for _, stream := range []string{journalStream, tableStream} {
			if err := l.servers.WaitInSync(ctx, stream, patience); err != nil {
				return err
			}
		}
	}
	return nil
}

// leading returns the server that leads the table and not the events, since a stream without a
// leader is not trimmed anyway.
func (l *leaders) leading(ctx context.Context) (int, error) {
	events, err := l.servers.Leader(ctx, journalStream)
	if err != nil {
		return 0, err
	}
	table := (events + 1) % natstest.Nodes
	return table, l.servers.Lead(ctx, tableStream, table)
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
