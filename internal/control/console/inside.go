package console

import (
	"context"
	"errors"
	"net"
	"net/http"

	"github.com/auditrelay/auditrelay/internal/workspace"
)

// errClosed ends the calls within a relay that stops.
var errClosed = errors.New("the relay is shutting down; ask again when it is back")

// Client makes a client for a person, who asks within the relay and not through its socket. Who
// the person is was checked by the caller.
func (s *Server) Client(by workspace.Person) *Client {
	connect := func(ctx context.Context, _, _ string) (net.Conn, error) {
		ours, theirs := net.Pipe()
		select {
		case s.inside <- insideConn{theirs, by}:
			return ours, nil
		case <-s.working.Done():
			return nil, errClosed
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return &Client{http: &http.Client{Transport: &http.Transport{DialContext: connect, DisableKeepAlives: true}}, Person: by}
}

// insideConn is a connection within the relay, of a person.
type insideConn struct {
	net.Conn
	by workspace.Person
}

// insideListener accepts the connections within the relay, until it stops.
type insideListener struct{ *Server }

// Accept implements [net.Listener].
func (l insideListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.inside:
		return c, nil
	case <-l.working.Done():
		return nil, net.ErrClosed
	}
}

// Close implements [net.Listener].
func (insideListener) Close() error { return nil }

// Addr implements [net.Listener].
func (insideListener) Addr() net.Addr { return &net.UnixAddr{Name: "within the relay"} }
