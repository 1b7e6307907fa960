// Package realservers starts what sinks deliver to, and reads it back: real
// servers, as processes that can be killed and started again, and fakes that are
// as strict. All of them listen on loopback, and end with this process.
package realservers

import (
	"context"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/auditrelay/auditrelay/internal/testbed/rig"
)

// cluster are nodes of the same kind. It is for one goroutine at a time.
type cluster struct{ nodes []*node }

// node is one server, which keeps its address and files through its lives.
type node struct {
	address string // HOST:PORT for clients
	command rig.Command
	process *rig.Process // nil: not started yet
	killed  bool         // on purpose, and not started again yet
}

func (c *cluster) add(address string, command rig.Command) {
	c.nodes = append(c.nodes, &node{address: address, command: command})
}

// startAll starts all nodes.
func (c *cluster) startAll() error {
	for i := range c.nodes {
		if err := c.start(i); err != nil {
			return err
		}
	}
	return nil
}

func (c *cluster) start(i int) (err error) {
	n := c.nodes[i]
	if n.process != nil && !n.process.Ended() {
		return fmt.Errorf("start %s: it runs already", n.command.Name)
	}
	n.process, err = n.command.Start()
	n.killed = false
	return err
}

// restarting bounds how long a node may take until it listens again.
const restarting = 5 * time.Minute

// Restart starts a node that was killed, on the same address and files, and
// waits until it listens. It may still have to catch up.
func (c *cluster) Restart(ctx context.Context, i int) error {
	if err := c.start(i); err != nil {
		return err
	}
	n := c.nodes[i]
	return rig.Until(ctx, restarting, n.command.Name+" listens again", func() bool {
		conn, err := (&net.Dialer{Timeout: time.Second}).DialContext(ctx, "tcp", n.address)
		if err != nil {
			return false
		}
		return conn.Close() == nil
	}, n.process)
}

// Kill ends a node as a power cut does, but for the page cache.
func (c *cluster) Kill(i int) {
	c.nodes[i].killed = true
	c.nodes[i].process.Kill()
}

// Name says in words which node it is.
func (c *cluster) Name(i int) string { return c.nodes[i].command.Name }

// Nodes is how many there are.
func (c *cluster) Nodes() int { return len(c.nodes) }

// alive gives the processes that should run.
func (c *cluster) alive() (all []*rig.Process) {
	for _, n := range c.nodes {
		if n.process != nil && !n.killed {
			all = append(all, n.process)
		}
	}
	return all
}

// Tails gives the end of each node's log, for when something is wrong.
func (c *cluster) Tails() string {
	var b strings.Builder
	for _, n := range c.nodes {
		if n.process != nil {
			fmt.Fprintf(&b, "%s: %s\n", n.command.Name, n.process.Tail())
		}
	}
	return b.String()
}

// Close kills all nodes.
func (c *cluster) Close() {
	for _, p := range c.alive() {
		p.Kill()
	}
}
