package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// proxy stands in front of a destination, and can make it unreachable.
type proxy struct {
	listener net.Listener

	mu     sync.Mutex    // guards the fields below
	target string        // HOST:PORT
	fault  fault         // of the connections
	healed chan struct{} // closed, and replaced, when the fault changes
	conns  map[net.Conn]struct{}
}

// fault is what a proxy does with the data that passes.
type fault struct {
	refuse bool          // connections end as soon as they are made
	mute   bool          // nothing from the destination comes through
	delay  time.Duration // delay of answers, except in a connection's first exchanges
}

// greeting is the most bytes that a client sends to set up its connection; until then nothing
// is delayed.
const greeting = 2 << 10

// newProxy listens on loopback; aim sets the target.
func newProxy() (*proxy, error) {
	l, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("start a proxy: %w", err)
	}
	p := &proxy{listener: l, healed: make(chan struct{}), conns: map[net.Conn]struct{}{}}
	go p.accept()
	return p, nil
}

func (p *proxy) address() string { return p.listener.Addr().String() }

func (p *proxy) aim(target string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.target = target
}

// set changes the fault and cuts all connections.
func (p *proxy) set(f fault) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fault = f
	close(p.healed)
	p.healed = make(chan struct{})
	for c := range p.conns {
		_ = c.Close()
	}
	clear(p.conns)
}

func (p *proxy) close() {
	_ = p.listener.Close()
	p.set(fault{refuse: true})
}

func (p *proxy) accept() {
	for {
		c, err := p.listener.Accept()
		if err != nil {
			return
		}
		go p.carry(c)
	}
}

// carry passes one connection on.
func (p *proxy) carry(client net.Conn) {
	p.mu.Lock()
	f, target, changed := p.fault, p.target, p.healed
	p.conns[client] = struct{}{}
	p.mu.Unlock()
	defer p.drop(client)
	if f.refuse {
		return
	}
	server, err := (&net.Dialer{Timeout: time.Second}).Dial("tcp", target) //nolint:noctx // it has a timeout
	if err != nil {
		return
	}
	defer func() { _ = server.Close() }()
	var sent atomic.Int64
	go func() {
		_, _ = io.Copy(server, io.TeeReader(client, counter{&sent}))
		_ = server.Close()
	}()
	if f.mute {
		go func() { _, _ = io.Copy(io.Discard, server) }()
		<-changed
		return
	}
	_ = answer(client, server, f.delay, &sent)
}

// counter counts written bytes.
type counter struct{ n *atomic.Int64 }

func (c counter) Write(p []byte) (int, error) {
	c.n.Add(int64(len(p)))
	return len(p), nil
}

// answer passes the server's answers on, each piece after the delay once the client has
// sent more than a greeting.
func answer(client, server net.Conn, delay time.Duration, sent *atomic.Int64) error {
	if delay == 0 {
		_, err := io.Copy(client, server)
		return err
	}
	buf := make([]byte, 64<<10)
	for {
		n, err := server.Read(buf)
		if err != nil {
			return err
		}
		if sent.Load() > greeting {
			time.Sleep(delay)
		}
		if _, err := client.Write(buf[:n]); err != nil {
			return err
		}
	}
}

func (p *proxy) drop(c net.Conn) {
	_ = c.Close()
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.conns, c)
}

// listen makes a listener that is reached through the proxy and has the proxy's address as its
// own, so that an address which the destination announces leads through the proxy.
func (p *proxy) listen(network, _ string) (net.Listener, error) {
	l, err := (&net.ListenConfig{}).Listen(context.Background(), network, "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p.aim(l.Addr().String())
	return behind{l, p.listener.Addr()}, nil
}

// behind is a listener that is reached through a proxy.
type behind struct {
	net.Listener
	addr net.Addr
}

func (b behind) Addr() net.Addr { return b.addr }
