package app

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/auditrelay/auditrelay/internal/ingest/connlimit"
	"github.com/auditrelay/auditrelay/internal/retry"
)

// ingestListener is the name of the listener for pushes.
const ingestListener = "ingest"

// Socket is the listening socket of the pushes, where it outlives a process: its owner, such as
// systemd, holds it open, and hands it to the process before and to the next one. Connections that
// arrive while no process accepts wait in it, so that none is refused or reset.
type Socket struct {
	mu   sync.Mutex
	file *os.File // nil: the relay opens the listener itself; guarded by mu
	keep bool     // the next process gets it; guarded by mu
}

// NewSocket returns a socket that was handed over; with nil, the relay opens its listener itself.
func NewSocket(file *os.File) *Socket { return &Socket{file: file} }

// Keep has a relay that stops leave the socket open, in File, for the process that replaces it.
func (s *Socket) Keep() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.keep = true
}

// File is the socket, if it outlives the relay's listener; else nil.
func (s *Socket) File() *os.File {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.file
}

// listen returns a listener on the socket, if there is one for this address, or else opens one.
func (s *Socket) listen(ctx context.Context, address string) (net.Listener, error) {
	file := s.File()
	if file == nil {
		return (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	}
	listener, err := net.FileListener(file) // a copy: the socket stays open when it is closed
	if err != nil {
		return nil, fmt.Errorf("use the listening socket that was handed over: %w", err)
	}
	if wrong := otherAddress(listener.Addr(), address); wrong != "" {
		_ = listener.Close() // it was not used
		return nil, fmt.Errorf("the listening socket that was handed over is %s; let ListenStream= of the socket unit and ingest.listen say the same", wrong)
	}
	return listener, nil
}

// otherAddress says how a socket's address differs from a configured one; empty if it does not. The
// port 0 and a host that is no address allow any.
func otherAddress(at net.Addr, address string) string {
	tcp, ok := at.(*net.TCPAddr)
	if !ok {
		return "of " + at.Network() + ", not of TCP"
	}
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return ""
	}
	ip := net.ParseIP(host)
	anyHost := ip == nil && host != "" || ip != nil && ip.Equal(tcp.IP) || (ip == nil || ip.IsUnspecified()) && tcp.IP.IsUnspecified()
	if port != "0" && port != fmt.Sprint(tcp.Port) || !anyHost {
		return "at " + at.String()
	}
	return ""
}

// outlive notes the socket of a listener that is about to be closed, if the next process is to get
// it, and reports whether the socket outlives the listener.
func (s *Socket) outlive(listener net.Listener) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.file != nil || !s.keep {
		return s.file != nil, nil
	}
	tcp, ok := listener.(*net.TCPListener)
	if !ok {
		return false, nil
	}
	file, err := tcp.File()
	if err != nil {
		return false, fmt.Errorf("keep the listening socket for the next process: %w", err)
	}
	s.file = file
	return true, nil
}

// drainFor is how long connections may say nothing before they are closed without an answer.
const drainFor = 2 * time.Second

// farewell ends connections with an answer, so that a client does not send a further request on
// one that is being closed.
type farewell struct {
	next    http.Handler
	begun   atomic.Bool
	without atomic.Int64 // requests under way whose answers do not say it
}

func (f *farewell) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.without.Add(1)
	if f.begun.Load() {
		f.without.Add(-1)
		w.Header().Set("Connection", "close")
	} else {
		defer f.without.Add(-1)
	}
	f.next.ServeHTTP(w, r)
}

// say accepts no further connection, and takes farewell from those that there are, as long as ctx
// allows. The server must not be told to shut down before: from then on net/http drops each request
// that it reads. The time for the next requests begins after the answers that do not say it.
func (f *farewell) say(ctx context.Context, door *connlimit.Door) {
	f.begun.Store(true)
	_ = door.Close() // the socket stays open, and what comes waits in it
	for f.without.Load() > 0 && retry.Sleep(ctx, 10*time.Millisecond) == nil {
	}
	ctx, cancel := context.WithTimeout(ctx, drainFor)
	defer cancel()
	for door.Open() > 0 && retry.Sleep(ctx, 10*time.Millisecond) == nil {
	}
}
