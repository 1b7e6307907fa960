// Package natstest runs nats-servers with JetStream, and reads their streams back:
//
//   - [Start] runs one in this process for a program, [Run] and [Serve] for a test.
//   - [StartCluster] runs three processes, to kill and start again.
//   - [Connect] is for servers run by somebody else.
//
// All of them listen on loopback.
package natstest

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/internal/testbed/rig"
)

// Server is a server in this process, with a connection to it.
type Server struct {
	Client

	server *server.Server
}

// Start starts a server with its files in dir.
func Start(dir string) (*Server, error) {
	srv, err := start(dir)
	if err != nil {
		return nil, err
	}
	s := &Server{Client: Client{URL: srv.ClientURL()}, server: srv}
	if err := s.connect(); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// Close disconnects, and stops the server.
func (s *Server) Close() {
	s.Client.Close()
	Stop(s.server)
}

// startWithin bounds a server's start, on a machine with other work too.
const startWithin = 4 * time.Minute

// start starts a server. Its port is outside the kernel's own range, so that a restart on the
// same port finds it free.
func start(dir string, changes ...func(*server.Options)) (*server.Server, error) {
	free, err := rig.FreeAddresses(context.Background(), 1)
	if err != nil {
		return nil, err
	}
	address, err := netip.ParseAddrPort(free[0])
	if err != nil {
		return nil, fmt.Errorf("choose a port: %w", err)
	}
	options := &server.Options{
		Host: "127.0.0.1", Port: int(address.Port()), NoSigs: true, NoLog: true, JetStream: true, StoreDir: dir,
	}
	for _, change := range changes {
		change(options)
	}
	srv, err := server.NewServer(options)
	if err != nil {
		return nil, fmt.Errorf("configure nats-server: %w", err)
	}
	srv.Start()
	if !srv.ReadyForConnections(startWithin) {
		Stop(srv)
		return nil, errors.New("start nats-server: it does not answer")
	}
	return srv, nil
}

// SyncAlways makes a server acknowledge after its fsync.
func SyncAlways(o *server.Options) { o.SyncAlways = true }

// Port has a server listen on a port. 0 stands for any free one.
func Port(port int) func(*server.Options) {
	return func(o *server.Options) {
		if port != 0 {
			o.Port = port
		}
	}
}

// Run runs a server until the test ends. It keeps its files in dir, listens on a free
// port of loopback, and syncs lazily, unless changes say otherwise.
func Run(tb testing.TB, dir string, changes ...func(*server.Options)) *server.Server {
	tb.Helper()
	srv, err := start(dir, changes...)
	require.NoError(tb, err)
	tb.Cleanup(func() { Stop(srv) })
	return srv
}

// Stop stops a server, and waits until its files are closed. A second call does nothing.
func Stop(srv *server.Server) {
	srv.Shutdown()
	srv.WaitForShutdown()
}

// JetStream connects to a server within the process, until the test ends. Its Conn is
// the connection.
func JetStream(tb testing.TB, srv nats.InProcessConnProvider, options ...nats.Option) jetstream.JetStream {
	tb.Helper()
	nc, err := nats.Connect("", append(options, nats.InProcessServer(srv))...)
	require.NoError(tb, err)
	tb.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	require.NoError(tb, err)
	return js
}

// Serve does [Run] and [JetStream]. stop ends both before the test's end, and returns
// once the files are closed.
func Serve(tb testing.TB, dir string, changes ...func(*server.Options)) (js jetstream.JetStream, stop func()) {
	tb.Helper()
	srv := Run(tb, dir, changes...)
	js = JetStream(tb, srv)
	return js, func() {
		js.Conn().Close()
		Stop(srv)
	}
}
