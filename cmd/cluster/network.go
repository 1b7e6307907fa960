package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// machine is a place in the network: this process, a server or a relay.
type machine int

// The machines. Those of the servers and of the relays follow each other.
const (
	here machine = iota
	firstServer
	firstRelay = firstServer + servers
	machines   = firstRelay + relays
	servers    = 3
	relays     = 3
)

// Ports of the machines.
const (
	portClients = 4222 // of a server
	portRoutes  = 6222
	portPushes  = 8080 // of a relay
	portAdmin   = 9100
)

// fault is what happens to what one machine sends to another.
type fault struct {
	cut   bool
	delay time.Duration
	loss  float64 // the share of packets that are lost; proxies lose none
}

// network connects the machines.
type network interface {
	// listensAt is where a process on a machine listens on a port.
	listensAt(m machine, port int) string
	// address is where one machine reaches a port of another.
	address(from, to machine, port int) (string, error)
	// listen makes a listener of this process that a machine reaches on its own loopback.
	listen(ctx context.Context, m machine) (net.Listener, error)
	// enter is what goes before the command of a process on the machine.
	enter(m machine) []string
	// set changes what happens from now on to what one machine sends to another.
	set(from, to machine, f fault)
	close()
}

// newNetwork makes namespaces for the machines, or proxies.
func newNetwork(loopback bool) (network, error) {
	if loopback {
		return newProxies(), nil
	}
	return newSwitch()
}

// heal ends all faults.
func heal(n network) {
	for from := range machines {
		for to := range machines {
			n.set(from, to, fault{})
		}
	}
}

// packetSwitch is a network of namespaces, whose packets it passes on.
type packetSwitch struct {
	spaces [machines]*namespace
	links  [machines][machines]link
	ended  chan struct{}
	once   sync.Once
}

// link is the way of packets from one machine to another.
type link struct {
	fault atomic.Pointer[fault]
	late  chan packet
}

// packet is to be passed on at a time.
type packet struct {
	at   time.Time
	data []byte
}

// lateMost bounds the packets under way on a slow link, as a router's queue does.
const lateMost = 4000

func newSwitch() (*packetSwitch, error) {
	s := &packetSwitch{ended: make(chan struct{})}
	for m := range machines {
		open := newNamespace
		if m == here {
			open = hereNamespace
		}
		space, err := open(addressOf(m))
		if err != nil {
			s.close()
			return nil, err
		}
		s.spaces[m] = space
	}
	for from := range machines {
		for to := range machines {
			l := &s.links[from][to]
			l.fault.Store(&fault{})
			l.late = make(chan packet, lateMost)
			go s.passLate(l.late, s.spaces[to].tun)
		}
		go s.pass(from)
	}
	return s, nil
}

// addressOf is a machine's, in the range for measurements of networks (RFC 2544).
func addressOf(m machine) [4]byte { return [4]byte{198, 18, 0, byte(m) + 1} }

// pass reads what a machine sends.
func (s *packetSwitch) pass(from machine) {
	buf := make([]byte, 64<<10)
	for {
		n, err := s.spaces[from].tun.Read(buf)
		if err != nil {
			return // closed
		}
		const header, destination = 20, 19 // IPv4's, and the last byte of the receiver's address in it
		if n < header || buf[0]>>4 != 4 {
			continue
		}
		if to := machine(buf[destination]) - 1; to >= 0 && to < machines {
			s.send(&s.links[from][to], s.spaces[to].tun, buf[:n])
		}
	}
}

func (s *packetSwitch) send(l *link, to *os.File, data []byte) {
	f := l.fault.Load()
	switch {
	case f.cut || f.loss > 0 && rand.Float64() < f.loss:
	case f.delay > 0:
		select {
		case l.late <- packet{time.Now().Add(f.delay), append([]byte(nil), data...)}:
		default: // the queue is full, so it is lost
		}
	default:
		_, _ = to.Write(data) // what a full interface refuses is lost, as on a wire
	}
}

func (s *packetSwitch) passLate(late <-chan packet, to *os.File) {
	for {
		select {
		case p := <-late:
			time.Sleep(time.Until(p.at))
			_, _ = to.Write(p.data)
		case <-s.ended:
			return
		}
	}
}

func (s *packetSwitch) listensAt(m machine, port int) string {
	a := addressOf(m)
	return net.JoinHostPort(net.IP(a[:]).String(), fmt.Sprint(port))
}

func (s *packetSwitch) address(_, to machine, port int) (string, error) {
	return s.listensAt(to, port), nil
}

func (s *packetSwitch) listen(ctx context.Context, m machine) (net.Listener, error) {
	return s.spaces[m].listen(ctx, "127.0.0.1:0")
}

func (s *packetSwitch) enter(m machine) []string {
	return []string{"/proc/self/exe", "enter", s.spaces[m].file()}
}

func (s *packetSwitch) set(from, to machine, f fault) { s.links[from][to].fault.Store(&f) }

func (s *packetSwitch) close() {
	s.once.Do(func() { close(s.ended) })
	for _, space := range s.spaces {
		if space != nil && space.tun != nil {
			_ = space.tun.Close()
		}
	}
}
