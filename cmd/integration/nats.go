package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/auditrelay/auditrelay/internal/testbed/natstest"
)

// cluster returns the servers for all NATS destinations.
func (s *session) cluster(ctx context.Context) (*natstest.Cluster, error) {
	if s.nats != nil {
		return s.nats, nil
	}
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this program, which is a nats-server too: %w", err)
	}
	s.nats, err = natstest.StartCluster(ctx, natstest.Options{Command: []string{self, natsCommand}, Dir: s.dir})
	if err != nil {
		return nil, err
	}
	s.closers = append(s.closers, s.nats.Close)
	return s.nats, nil
}

// The first stream has a server's default duplicate window, the second nearly none, so that it
// shows events which the relay has sent twice.
const (
	natsStream, natsSubjects = "EVENTS", "events"
	bareStream, bareSubjects = "BARE", "bare"
)

func startNATS(ctx context.Context, s *session) (*place, error) {
	cluster, err := s.cluster(ctx)
	if err != nil {
		return nil, err
	}
	windowed, err := natsTarget(ctx, cluster, natsStream, natsSubjects, 2*time.Minute)
	if err != nil {
		return nil, err
	}
	windowed.name, windowed.sink = "nats R3", "nats"
	bare, err := natsTarget(ctx, cluster, bareStream, bareSubjects, 100*time.Millisecond)
	if err != nil {
		return nil, err
	}
	bare.name, bare.sink = "nats R3, no duplicate window", "nats-bare"
	return &place{
		targets: []target{windowed, bare},
		outage:  outageOf(cluster, natsStream, bareStream),
		tails:   cluster.Tails,
	}, nil
}

// natsTarget makes a stream and says how it is delivered to and read.
func natsTarget(ctx context.Context, cluster *natstest.Cluster, stream, subjects string, window time.Duration) (target, error) {
	if err := cluster.CreateStream(ctx, stream, subjects+".>", window); err != nil {
		return target{}, err
	}
	return target{
		section: fmt.Sprintf(`nats: {url: %q, subject: "%s.{project}.{environment}.{type}"}`, cluster.URL, subjects),
		read:    readerOf(cluster.Stream(stream)),
	}, nil
}

// healing bounds how long a restarted node takes to catch up.
const healing = 2 * time.Minute

// outageOf kills the leader of the first stream. Before that, the node is made the leader of
// the other streams too: one kill takes them all. It reads streams again each time.
func outageOf(cluster *natstest.Cluster, streams ...string) *outage {
	var down int
	return &outage{
		kill: func(ctx context.Context) (string, error) {
			leader, err := cluster.Leader(ctx, streams[0])
			if err != nil {
				return "", err
			}
			for _, stream := range streams {
				if err := cluster.Lead(ctx, stream, leader); err != nil {
					return "", err
				}
			}
			down = leader
			cluster.Kill(down)
			return cluster.Name(down) + ", the leader,", nil
		},
		heal: func(ctx context.Context) error {
			if err := cluster.Restart(ctx, down); err != nil {
				return err
			}
			for _, stream := range streams {
				if err := cluster.WaitInSync(ctx, stream, healing); err != nil {
					return err
				}
			}
			return nil
		},
	}
}

// startJournal has the relay keep its journal on the cluster. Its intake is counted at
// a file; a file loses nothing by itself.
func startJournal(ctx context.Context, s *session) (*place, error) {
	cluster, err := s.cluster(ctx)
	if err != nil {
		return nil, err
	}
	streams := make([]string, 2) // the journal's and the table's in the present run
	return &place{
		targets: []target{fileTarget("journal on nats R3", s.folder("journal.jsonl"))},
		journal: func(tag string) string {
			prefix := strings.ToUpper(tag)
			streams[0], streams[1] = prefix+"_EVENTS", prefix+"_TABLE"
			return fmt.Sprintf("journal: {url: %q, replicas: 3, max_bytes: 2GiB, stream_prefix: %s}\n", cluster.URL, prefix)
		},
		outage: outageOf(cluster, streams...),
		tails:  cluster.Tails,
	}, nil
}
