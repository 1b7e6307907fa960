package main

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"

	"github.com/auditrelay/auditrelay/internal/testbed/rig"
)

// proxies is a network on loopback: each machine reaches each port of another through a proxy
// of its own.
type proxies struct {
	mu        sync.Mutex // guards the fields below
	addresses map[place]string
	listeners map[way]net.Listener
	faults    map[[2]machine]fault
	changed   chan struct{} // closed, and replaced, with each change of a fault
}

// place is a port of a machine, and way is one as it is reached from another.
type (
	place struct {
		machine machine
		port    int
	}
	way struct {
		from machine
		to   place
	}
)

func newProxies() *proxies {
	return &proxies{
		addresses: map[place]string{}, listeners: map[way]net.Listener{}, faults: map[[2]machine]fault{}, changed: make(chan struct{}),
	}
}

func (p *proxies) listensAt(m machine, port int) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	at := place{m, port}
	if p.addresses[at] == "" {
		if free, err := rig.FreeAddresses(context.Background(), 1); err == nil {
			p.addresses[at] = free[0]
		}
	}
	return p.addresses[at]
}

func (p *proxies) address(from, to machine, port int) (string, error) {
	target := p.listensAt(to, port)
	if from == to {
		return target, nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	w := way{from, place{to, port}}
	if l := p.listeners[w]; l != nil {
		return l.Addr().String(), nil
	}
	l, err := p.listen(context.Background(), here)
	if err != nil {
		return "", err
	}
	p.listeners[w] = l
	go func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			go p.carry(from, to, in, target)
		}
	}()
	return l.Addr().String(), nil
}

func (p *proxies) listen(ctx context.Context, _ machine) (net.Listener, error) {
	return (&net.ListenConfig{}).Listen(ctx, "tcp4", "127.0.0.1:0")
}

func (*proxies) enter(machine) []string { return nil }

func (p *proxies) set(from, to machine, f fault) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.faults[[2]machine{from, to}] = f
	close(p.changed)
	p.changed = make(chan struct{})
}

func (p *proxies) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, l := range p.listeners {
		_ = l.Close()
	}
}

// passage returns once bytes may pass from one machine to another.
func (p *proxies) passage(from, to machine) {
	for {
		p.mu.Lock()
		f, changed := p.faults[[2]machine{from, to}], p.changed
		p.mu.Unlock()
		if !f.cut {
			time.Sleep(f.delay)
			return
		}
		<-changed
	}
}

// carry passes a connection on.
func (p *proxies) carry(from, to machine, in net.Conn, target string) {
	defer func() { _ = in.Close() }()
	p.passage(from, to)
	p.passage(to, from)
	out, err := (&net.Dialer{Timeout: time.Second}).Dial("tcp", target) //nolint:noctx // it has a timeout
	if err != nil {
		return
	}
	defer func() { _ = out.Close() }()
	done := make(chan struct{}, 2)
	for _, d := range []struct {
		from, to machine
		in, out  net.Conn
	}{{from, to, in, out}, {to, from, out, in}} {
		go func() {
			_ = p.copy(d.from, d.to, d.in, d.out) // the end of either side is that of both
			done <- struct{}{}
		}()
	}
	<-done
}

func (p *proxies) copy(from, to machine, in, out net.Conn) (err error) {
	buf := make([]byte, 64<<10)
	for {
		n, err := in.Read(buf)
		p.passage(from, to)
		if _, failed := out.Write(buf[:n]); errors.Join(err, failed) != nil {
			return err
		}
	}
}
