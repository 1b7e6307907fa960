package rig

import (
	"context"
	"fmt"
	"net"
	"strings"
	"syscall"
	"time"
)

// Nodes are the servers of one cluster, each a process. They are for one
// goroutine at a time.
type Nodes struct{ nodes []*node }

// node is one server. Its address and files stay the same after a restart.
type node struct {
	address string // HOST:PORT for clients
	command Command
	process *Process // nil: not started yet
	killed  bool     // on purpose, and not started again yet
}

// Add adds a server for clients at address, HOST:PORT. It is not started yet.
func (c *Nodes) Add(address string, command Command) {
	c.nodes = append(c.nodes, &node{address: address, command: command})
}

// StartAll starts all nodes, and waits for none of them.
func (c *Nodes) StartAll() error {
	for i := range c.nodes {
		if err := c.start(i); err != nil {
			return err
		}
	}
	return nil
}

func (c *Nodes) start(i int) (err error) {
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

// Restart starts a killed node with the same address and files, and waits until it
// listens. The node may still have to catch up.
func (c *Nodes) Restart(ctx context.Context, i int) error {
	if err := c.start(i); err != nil {
		return err
	}
	n := c.nodes[i]
	return Until(ctx, restarting, n.command.Name+" listens again", func() bool {
		conn, err := (&net.Dialer{Timeout: time.Second}).DialContext(ctx, "tcp", n.address)
		if err != nil {
			return false
		}
		return conn.Close() == nil
	}, n.process)
}

// Kill ends a node as a power cut does, though the page cache stays.
func (c *Nodes) Kill(i int) {
	c.nodes[i].killed = true
	c.nodes[i].process.Kill()
}

// Freeze stops a node without ending it: its connections stay open, and nobody answers.
func (c *Nodes) Freeze(i int) error { return c.nodes[i].process.signal(syscall.SIGSTOP) }

// Thaw lets a frozen node go on.
func (c *Nodes) Thaw(i int) error { return c.nodes[i].process.signal(syscall.SIGCONT) }

// Name is the node's name for messages.
func (c *Nodes) Name(i int) string { return c.nodes[i].command.Name }

// Len is the number of nodes.
func (c *Nodes) Len() int { return len(c.nodes) }

// Alive returns the processes expected to run.
func (c *Nodes) Alive() (all []*Process) {
	for _, n := range c.nodes {
		if n.process != nil && !n.killed {
			all = append(all, n.process)
		}
	}
	return all
}

// Tails returns the end of each node's log, for an error message.
func (c *Nodes) Tails() string {
	var b strings.Builder
	for _, n := range c.nodes {
		if n.process != nil {
			fmt.Fprintf(&b, "%s: %s\n", n.command.Name, n.process.Tail())
		}
	}
	return b.String()
}

// KillAll kills all nodes.
func (c *Nodes) KillAll() {
	for _, p := range c.Alive() {
		p.Kill()
	}
}
