package console

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/auditrelay/auditrelay/internal/workspace"
)

const (
	// socketName is the socket's, within the data directory.
	socketName = "control.sock"
	// maxSocketPath is the room in the kernel's sockaddr_un, without its final NUL.
	maxSocketPath = 107
	dialTimeout   = 5 * time.Second
)

// socket is a listening one.
type socket struct {
	path     string
	listener *net.UnixListener
}

// listen makes the socket, with mode 0600. A socket left behind by a dead process is
// replaced; one with a listener is not.
func listen(ctx context.Context, dir string) (*socket, error) {
	path := filepath.Join(dir, socketName)
	if conn, err := dial(ctx, dir); err == nil {
		_ = conn.Close()
		return nil, fmt.Errorf("another process serves %s; give each relay a data_dir of its own", path)
	}
	// A crash on any line from here leaves no socket, or one without a listener: the
	// next start replaces it.
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("remove the socket of an earlier process: %w", err)
	}
	address, done, err := addressOf(dir)
	if err != nil {
		return nil, err
	}
	defer done()
	// The mode is set before the name exists, so nobody gets in between.
	cfg := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		return c.Control(func(fd uintptr) { _ = syscall.Fchmod(int(fd), 0o600) })
	}}
	l, err := cfg.Listen(ctx, "unix", address)
	if err != nil {
		return nil, fmt.Errorf("listen at %s: %w", path, err)
	}
	listener := l.(*net.UnixListener)
	listener.SetUnlinkOnClose(false) // address may have ceased to name it; close does it
	if err := os.Chmod(path, 0o600); err != nil {
		return nil, errors.Join(fmt.Errorf("make %s private: %w", path, err), listener.Close())
	}
	return &socket{path: path, listener: listener}, nil
}

// close removes the socket. Its listener is the HTTP server's to close.
func (s *socket) close() error {
	if err := os.Remove(s.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove the console's socket: %w", err)
	}
	return nil
}

// dial connects to the relay of dir.
func dial(ctx context.Context, dir string) (net.Conn, error) {
	address, done, err := addressOf(dir)
	if err != nil {
		return nil, err
	}
	defer done()
	d := net.Dialer{Timeout: dialTimeout}
	return d.DialContext(ctx, "unix", address)
}

// addressOf returns the socket's name for the kernel: its path. If this is too long for a
// socket, it is a path through an open directory, possible on Linux.
func addressOf(dir string) (address string, done func(), err error) {
	path := filepath.Join(dir, socketName)
	if len(path) <= maxSocketPath {
		return path, func() {}, nil
	}
	if runtime.GOOS != "linux" {
		return "", nil, fmt.Errorf("the path %s has %d bytes, a socket's may have %d: choose a shorter data_dir", path, len(path), maxSocketPath)
	}
	d, err := os.Open(dir)
	if err != nil {
		return "", nil, err
	}
	return fmt.Sprintf("/proc/self/fd/%d/%s", d.Fd(), socketName), func() { _ = d.Close() }, nil
}

// onURL puts a person into a request's query.
func onURL(p workspace.Person) string {
	return url.Values{"user": {p.User}, "host": {p.Host}}.Encode()
}

type (
	personKey struct{}
	peerKey   struct{}
)

// withPeer keeps in the context of a connection who has opened it. Of one within the relay that is
// the person who asks, and nothing is left to be claimed.
func withPeer(ctx context.Context, c net.Conn) context.Context {
	if inside, is := c.(insideConn); is {
		return context.WithValue(ctx, personKey{}, inside.by)
	}
	var p workspace.Person
	p.User, p.UID = peerOf(c)
	p.Host, _ = os.Hostname() // unknown: the socket is on the relay's host all the same
	return context.WithValue(ctx, peerKey{}, p)
}

// withPerson keeps a request's person in its context: the user at the other end of the
// socket, and what the request claims beyond that.
func withPerson(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Context().Value(personKey{}) != nil {
			next.ServeHTTP(w, r)
			return
		}
		p, _ := r.Context().Value(peerKey{}).(workspace.Person)
		query := r.URL.Query()
		p.Claimed = claimOf(p, claimed(query.Get("user")), claimed(query.Get("host")))
		p.User, p.Host = cmp.Or(p.User, "unknown"), cmp.Or(p.Host, "unknown")
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), personKey{}, p)))
	})
}

// claimOf is what a request says of its person, empty where that is no news.
func claimOf(known workspace.Person, user, host string) string {
	if user == "" || user == known.User && (host == known.Host || host == "") {
		return ""
	}
	return user + "@" + host
}

// maxClaim bounds each part of a claim, in bytes.
const maxClaim = 128

// claimed is a part of a claim as it is kept.
func claimed(text string) string {
	return strings.ToValidUTF8(text[:min(len(text), maxClaim)], "")
}

func personOf(ctx context.Context) workspace.Person {
	p, _ := ctx.Value(personKey{}).(workspace.Person)
	return p
}

// record enters a loss into the audit trail, with the person who asks for it.
func (s *Server) record(ctx context.Context, loss Loss) error {
	loss.Person = personOf(ctx)
	return s.opts.Record(ctx, loss)
}

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
