package natstest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/auditrelay/auditrelay/internal/testbed/rig"
)

// Cluster is three servers with JetStream, each a process. It is for one goroutine at
// a time.
type Cluster struct {
	Client // its URL names all servers
	rig.Nodes
}

// Options say how the servers of a cluster are run.
type Options struct {
	// Command is a program to run a server. The path of the server's configuration is
	// appended: nats-server -c, or a program calling [RunNode].
	Command []string
	// Dir is where the servers keep their files.
	Dir string
	// SyncAlways has them sync each write before they acknowledge it.
	SyncAlways bool
}

// Nodes is the size of the smallest cluster able to lose one of them.
const Nodes = 3

// electionWithin bounds the start of a cluster, and an election.
const electionWithin = 5 * time.Minute

// askTimeout bounds one question to a cluster, perhaps one without a leader.
const askTimeout = 5 * time.Second

// StartCluster starts three servers and waits until JetStream has a leader among them.
func StartCluster(ctx context.Context, o Options) (n *Cluster, err error) {
	n = &Cluster{}
	defer func() {
		if err != nil {
			n.Close()
		}
	}()
	if err := n.configure(ctx, o); err != nil {
		return nil, err
	}
	if err := n.StartAll(); err != nil {
		return nil, err
	}
	err = rig.Until(ctx, electionWithin, "the nats cluster is there", func() bool {
		if n.conn == nil {
			_ = n.connect() // tried again
			return false
		}
		asking, cancel := context.WithTimeout(ctx, askTimeout)
		defer cancel()
		_, err := n.js.AccountInfo(asking)
		return err == nil
	}, n.Alive()...)
	if err != nil {
		return nil, fmt.Errorf("start nats: %w", err)
	}
	return n, nil
}

// configure writes the servers' configuration.
func (n *Cluster) configure(ctx context.Context, o Options) error {
	free, err := rig.FreeAddresses(ctx, 2*Nodes)
	if err != nil {
		return err
	}
	clients, routes := free[:Nodes], free[Nodes:]
	n.URL = "nats://" + strings.Join(clients, ",nats://")
	for i := range Nodes {
		dir := filepath.Join(o.Dir, fmt.Sprintf("nats-%d", i+1))
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return fmt.Errorf("make a folder for nats: %w", err)
		}
		file := filepath.Join(dir, "server.conf")
		text := nodeConfig(nodeName(i), clients[i], routes[i], routes, filepath.Join(dir, "data"), o.SyncAlways)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			return fmt.Errorf("configure nats: %w", err)
		}
		n.Add(clients[i], rig.Command{
			Name: "nats-server " + nodeName(i), Dir: dir, Log: filepath.Join(dir, "server.log"),
			Args: append(o.Command[:len(o.Command):len(o.Command)], file),
		})
	}
	return nil
}

// nodeName is the server's name in the cluster.
func nodeName(i int) string { return fmt.Sprintf("n%d", i+1) }

// nodeConfig names the cluster by its first route, because two clusters of one name could merge
// if one has a port that the other had before.
func nodeConfig(name, client, route string, routes []string, dir string, syncAlways bool) string {
	sync := ""
	if syncAlways {
		sync = ", sync_interval: always"
	}
	return fmt.Sprintf(`server_name: %s
listen: %q
jetstream: {store_dir: %q, max_file_store: 100GB, max_memory_store: 64MB%s}
cluster: {name: %q, listen: %q, routes: ["nats-route://%s"], no_advertise: true}
`, name, client, dir, sync, strings.ReplaceAll(routes[0], ".", "-"), route, strings.Join(routes, `", "nats-route://`))
}

// CreateStream makes a stream in file storage with a copy on each server, and
// waits until it has a leader. window is how long it knows message ids; the
// server takes no less than 100 ms.
func (n *Cluster) CreateStream(ctx context.Context, name, subjects string, window time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, electionWithin)
	defer cancel()
	last := errors.New("not asked yet")
	err := rig.Until(ctx, electionWithin, "the nats stream "+name+" is made", func() bool {
		asking, cancel := context.WithTimeout(ctx, askTimeout)
		defer cancel()
		_, last = n.js.CreateStream(asking, jetstream.StreamConfig{
			Name: name, Subjects: []string{subjects}, Storage: jetstream.FileStorage, Replicas: Nodes, Duplicates: window,
		})
		return last == nil // else the servers may not have found each other yet
	}, n.Alive()...)
	if err != nil {
		return fmt.Errorf("%w (%w)", err, last)
	}
	return n.WaitInSync(ctx, name, electionWithin)
}

// Leader returns the leading server of a stream.
func (n *Cluster) Leader(ctx context.Context, stream string) (int, error) {
	info, err := n.info(ctx, stream)
	if err != nil {
		return 0, err
	}
	if info == nil || info.Leader == "" {
		return 0, fmt.Errorf("look for the leader of the nats stream %s: it has none", stream)
	}
	return n.Named(info.Leader)
}

// Named finds a server by its name, as the leader of a stream has it.
func (n *Cluster) Named(name string) (int, error) {
	for i := range Nodes {
		if name == nodeName(i) {
			return i, nil
		}
	}
	return 0, fmt.Errorf("find the nats-server %q: there is none", name)
}

// Lead makes a server the leader of a stream. A stream with a single copy stays where it is.
func (n *Cluster) Lead(ctx context.Context, stream string, i int) error {
	return n.Prefer(ctx, stream, nodeName(i))
}

// WaitInSync waits until every copy of a stream is current. After that the next server may go.
func (n *Cluster) WaitInSync(ctx context.Context, stream string, within time.Duration) error {
	last := errors.New("not asked yet")
	err := rig.Until(ctx, within, "all copies of the nats stream "+stream+" are current", func() bool {
		var info *jetstream.ClusterInfo
		if info, last = n.info(ctx, stream); last != nil {
			return false
		}
		if info == nil || info.Leader == "" || len(info.Replicas) < Nodes-1 {
			last = fmt.Errorf("its cluster is %+v", info)
			return false
		}
		for _, r := range info.Replicas {
			if !r.Current || r.Offline {
				last = fmt.Errorf("%s is current: %t, offline: %t, behind by %d", r.Name, r.Current, r.Offline, r.Lag)
				return false
			}
		}
		return true
	}, n.Alive()...)
	if err != nil {
		return fmt.Errorf("%w (%w)", err, last)
	}
	return nil
}

// Close disconnects, and kills the servers.
func (n *Cluster) Close() {
	n.Client.Close()
	n.KillAll()
}
