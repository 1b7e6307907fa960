package realservers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/auditrelay/auditrelay/internal/testbed/rig"
)

// NATS is a cluster of nats-servers with JetStream. It is for one goroutine at
// a time.
type NATS struct {
	cluster
	// URL names all servers, joined with commas.
	URL string

	conn *nats.Conn
	js   jetstream.JetStream
}

// NATSOptions say how servers are run.
type NATSOptions struct {
	// Command is the program that runs a server, to which the path of its
	// configuration is appended: nats-server -c, or one that calls [RunNATS].
	Command []string
	// Dir is where the servers keep their files.
	Dir string
}

// natsNodes is the least that goes on without one of them.
const natsNodes = 3

// natsStart bounds the start of servers, and an election.
const natsStart = 5 * time.Minute

// RunNATS runs a nats-server by a configuration file until it is told to end
// by a signal. It is for a program that starts itself as NATSOptions.Command.
func RunNATS(config string) error {
	options, err := server.ProcessConfigFile(config)
	if err != nil {
		return fmt.Errorf("read the configuration of nats-server: %w", err)
	}
	srv, err := server.NewServer(options)
	if err != nil {
		return fmt.Errorf("configure nats-server: %w", err)
	}
	srv.ConfigureLogger()
	srv.Start()
	srv.WaitForShutdown()
	return nil
}

// StartNATS starts three servers and waits until JetStream has a leader among them.
func StartNATS(ctx context.Context, o NATSOptions) (n *NATS, err error) {
	n = &NATS{}
	defer func() {
		if err != nil {
			n.Close()
		}
	}()
	if err := n.configure(ctx, o); err != nil {
		return nil, err
	}
	if err := n.startAll(); err != nil {
		return nil, err
	}
	err = rig.Until(ctx, natsStart, "the nats cluster is there", func() bool {
		if n.conn == nil {
			n.connect()
			return false
		}
		asking, cancel := context.WithTimeout(ctx, askTimeout)
		defer cancel()
		_, err := n.js.AccountInfo(asking)
		return err == nil
	}, n.alive()...)
	if err != nil {
		return nil, fmt.Errorf("start nats: %w", err)
	}
	return n, nil
}

func (n *NATS) connect() {
	conn, err := nats.Connect(n.URL, nats.MaxReconnects(-1), nats.ReconnectWait(100*time.Millisecond))
	if err != nil {
		return // it is tried again
	}
	if n.js, err = jetstream.New(conn); err != nil {
		conn.Close()
		return
	}
	n.conn = conn
}

// configure writes the servers' configuration.
func (n *NATS) configure(ctx context.Context, o NATSOptions) error {
	free, err := rig.FreeAddresses(ctx, 2*natsNodes)
	if err != nil {
		return err
	}
	clients, routes := free[:natsNodes], free[natsNodes:]
	n.URL = "nats://" + strings.Join(clients, ",nats://")
	for i := range natsNodes {
		dir := filepath.Join(o.Dir, fmt.Sprintf("nats-%d", i+1))
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return fmt.Errorf("make a folder for nats: %w", err)
		}
		file := filepath.Join(dir, "server.conf")
		text := natsConfig(natsName(i), clients[i], routes[i], routes, filepath.Join(dir, "data"))
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			return fmt.Errorf("configure nats: %w", err)
		}
		n.add(clients[i], rig.Command{
			Name: "nats-server " + natsName(i), Dir: dir, Log: filepath.Join(dir, "server.log"),
			Args: append(o.Command[:len(o.Command):len(o.Command)], file),
		})
	}
	return nil
}

// natsName is the server's name in the cluster.
func natsName(i int) string { return fmt.Sprintf("n%d", i+1) }

func natsConfig(name, client, route string, routes []string, dir string) string {
	return fmt.Sprintf(`server_name: %s
listen: %q
jetstream: {store_dir: %q, max_file_store: 100GB, max_memory_store: 64MB}
cluster: {name: realservers, listen: %q, routes: ["nats-route://%s"], no_advertise: true}
`, name, client, dir, route, strings.Join(routes, `", "nats-route://`))
}

// CreateStream makes a stream in file storage with a copy on each server, and
// waits until it has a leader. window is how long it knows message ids; the
// server takes no less than 100 ms.
func (n *NATS) CreateStream(ctx context.Context, name, subjects string, window time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, natsStart)
	defer cancel()
	_, err := n.js.CreateStream(ctx, jetstream.StreamConfig{
		Name: name, Subjects: []string{subjects}, Storage: jetstream.FileStorage, Replicas: natsNodes, Duplicates: window,
	})
	if err != nil {
		return fmt.Errorf("create the nats stream %s: %w", name, err)
	}
	return n.WaitInSync(ctx, name, natsStart)
}

// info describes a stream's cluster; it is nil without one.
func (n *NATS) info(ctx context.Context, stream string) (*jetstream.ClusterInfo, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	s, err := n.js.Stream(ctx, stream)
	if err != nil {
		return nil, fmt.Errorf("describe the nats stream %s: %w", stream, err)
	}
	return s.CachedInfo().Cluster, nil
}

// Leader gives the server that leads a stream.
func (n *NATS) Leader(ctx context.Context, stream string) (int, error) {
	info, err := n.info(ctx, stream)
	if err != nil {
		return 0, err
	}
	for i := range n.nodes {
		if info != nil && info.Leader == natsName(i) {
			return i, nil
		}
	}
	return 0, fmt.Errorf("look for the leader of the nats stream %s: it has none", stream)
}

// Lead has a server lead a stream and all of its consumers, so that one kill
// takes them all.
func (n *NATS) Lead(ctx context.Context, stream string, i int) error {
	ctx, cancel := context.WithTimeout(ctx, natsStart)
	defer cancel()
	err := n.lead(ctx, stream, i, func() (*jetstream.ClusterInfo, error) { return n.info(ctx, stream) })
	if err != nil {
		return err
	}
	s, err := n.js.Stream(ctx, stream)
	if err != nil {
		return fmt.Errorf("describe the nats stream %s: %w", stream, err)
	}
	consumers := s.ListConsumers(ctx)
	for c := range consumers.Info() {
		err := n.lead(ctx, stream+"."+c.Name, i, func() (*jetstream.ClusterInfo, error) {
			asking, cancel := context.WithTimeout(ctx, askTimeout) // between two leaders nobody answers
			defer cancel()
			consumer, err := s.Consumer(asking, c.Name)
			if err != nil {
				return nil, err
			}
			return consumer.CachedInfo().Cluster, nil
		})
		if err != nil {
			return err
		}
	}
	return consumers.Err()
}

// lead has a server lead a stream, STREAM, or a consumer, STREAM.CONSUMER.
// What has one copy only stays where it is.
func (n *NATS) lead(ctx context.Context, what string, i int, info func() (*jetstream.ClusterInfo, error)) error {
	kind := "STREAM"
	if strings.Contains(what, ".") {
		kind = "CONSUMER"
	}
	request, err := json.Marshal(map[string]any{"placement": map[string]string{"preferred": natsName(i)}})
	if err != nil {
		return fmt.Errorf("ask for another leader of %s: %w", what, err)
	}
	return rig.Until(ctx, natsStart, natsName(i)+" leads "+what, func() bool {
		cluster, err := info()
		if err != nil || cluster == nil {
			return false
		}
		if cluster.Leader == natsName(i) || len(cluster.Replicas) == 0 {
			return true
		}
		asking, cancel := context.WithTimeout(ctx, askTimeout)
		defer cancel()
		// Its answer says nothing that the next look does not.
		_, _ = n.conn.RequestWithContext(asking, "$JS.API."+kind+".LEADER.STEPDOWN."+what, request)
		return false
	})
}

// WaitInSync waits until every copy of a stream is current, so that the next
// server may go.
func (n *NATS) WaitInSync(ctx context.Context, stream string, within time.Duration) error {
	last := errors.New("not asked yet")
	err := rig.Until(ctx, within, "all copies of the nats stream "+stream+" are current", func() bool {
		var info *jetstream.ClusterInfo
		if info, last = n.info(ctx, stream); last != nil {
			return false
		}
		if info == nil || info.Leader == "" || len(info.Replicas) < natsNodes-1 {
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
	}, n.alive()...)
	if err != nil {
		return fmt.Errorf("%w (%w)", err, last)
	}
	return nil
}

// Close kills the servers.
func (n *NATS) Close() {
	if n.conn != nil {
		n.conn.Close()
	}
	n.cluster.Close()
}
