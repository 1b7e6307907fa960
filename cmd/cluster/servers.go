package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/auditrelay/auditrelay/internal/testbed/natstest"
	"github.com/auditrelay/auditrelay/internal/testbed/rig"
)

// journalServers are the three nats-servers of the journal, each on a machine of its own.
type journalServers struct {
	rig.Nodes
	client *natstest.Client
}

// patience is how long nothing may move before that is a finding.
const patience = 90 * time.Second

// serverOf is the machine of a server, and relayOf that of a relay; both count from 0.
func serverOf(i int) machine { return firstServer + machine(i) }
func relayOf(i int) machine  { return firstRelay + machine(i) }

func serverName(i int) string { return fmt.Sprintf("n%d", i+1) }

// startServers starts them, and waits until they have a leader.
func startServers(ctx context.Context, dir string, n network) (*journalServers, error) {
	j := &journalServers{}
	for i := range servers {
		if err := j.add(dir, n, i); err != nil {
			return nil, err
		}
	}
	if err := j.StartAll(); err != nil {
		return nil, err
	}
	url, err := journalURL(n, here)
	if err != nil {
		return nil, err
	}
	err = rig.Until(ctx, patience, "the servers have a leader", func() bool {
		if j.client == nil {
			client, err := natstest.Connect(url)
			if err != nil {
				return false
			}
			j.client = client
		}
		asking, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		_, err := j.client.JetStream().AccountInfo(asking)
		return err == nil
	}, j.Alive()...)
	return j, err
}

// add writes a server's configuration.
func (j *journalServers) add(dir string, n network, i int) error {
	dir = filepath.Join(dir, serverName(i))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	var routes []string
	for other := range servers {
		address, err := n.address(serverOf(i), serverOf(other), portRoutes)
		if err != nil {
			return err
		}
		if other != i {
			routes = append(routes, "nats-route://"+address)
		}
	}
	text := fmt.Sprintf(`server_name: %s
listen: %q
jetstream: {store_dir: %q, max_file_store: 100GB, max_memory_store: 64MB, sync_interval: always}
cluster: {name: journal, listen: %q, routes: ["%s"], no_advertise: true}
`, serverName(i), n.listensAt(serverOf(i), portClients), filepath.Join(dir, "data"), n.listensAt(serverOf(i), portRoutes), strings.Join(routes, `", "`))
	file := filepath.Join(dir, "server.conf")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		return err
	}
	reached, err := n.address(here, serverOf(i), portClients)
	if err != nil {
		return err
	}
	j.Add(reached, rig.Command{
		Name: "nats-server " + serverName(i), Dir: dir, Log: filepath.Join(dir, "server.log"),
		Args: append(n.enter(serverOf(i)), "/proc/self/exe", natsCommand, file),
	})
	return nil
}

// journalURL names the servers as a machine reaches them.
func journalURL(n network, from machine) (string, error) {
	var all []string
	for i := range servers {
		address, err := n.address(from, serverOf(i), portClients)
		if err != nil {
			return "", err
		}
		all = append(all, "nats://"+address)
	}
	return strings.Join(all, ","), nil
}

// leader is the server that leads one of the relays' streams.
func (j *journalServers) leader(ctx context.Context, stream string) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	s, err := j.client.JetStream().Stream(ctx, stream)
	if err != nil {
		return 0, fmt.Errorf("ask for the leader of %s: %w", stream, err)
	}
	for i := range servers {
		if c := s.CachedInfo().Cluster; c != nil && c.Leader == serverName(i) {
			return i, nil
		}
	}
	return 0, fmt.Errorf("the stream %s has no leader", stream)
}

func (j *journalServers) close() {
	if j.client != nil {
		j.client.Close()
	}
	for i := range j.Len() {
		_ = j.Thaw(i) // a frozen process dies of SIGKILL too, but not at once
	}
	j.KillAll()
}
