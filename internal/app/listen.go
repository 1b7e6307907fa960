package app

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/internal/control/admin"
	"github.com/auditrelay/auditrelay/internal/ingest"
	"github.com/auditrelay/auditrelay/internal/ingest/connlimit"
	"github.com/auditrelay/auditrelay/internal/ingest/credentials"
	"github.com/auditrelay/auditrelay/internal/retry"
)

// startAdmin serves the private endpoints first of all: a long start can be watched.
func (r *process) startAdmin(ctx context.Context) error {
	private, err := admin.FileToken(filepath.Join(r.cfg().DataDir, admin.TokenFile))
	if err != nil {
		r.log.Warn("the private pages can be asked with admin.token alone", "error", err)
	}
	r.private = private
	r.admin = admin.New(r.reg, admin.Options{Token: r.cfg().Admin.Token, Private: private, Hosts: r.cfg().Admin.Hosts, Pprof: r.cfg().Admin.Pprof})
	r.connections = connlimit.NewMetrics(r.reg)
	server := serverOf(r.admin, 2*time.Minute) // a profile takes up to a minute and a half
	r.addresses.Admin, err = r.serve(ctx, &r.stack, r.cfg().Admin.Listen, r.cfg().Admin.TLS.ServerConfig, server, connlimit.Options{Name: "admin", Total: adminConnections})
	return err
}

// serverOf is a server for people and their programs, which may write its answers for so long.
func serverOf(handler http.Handler, writing time.Duration) *http.Server {
	return &http.Server{Handler: handler, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second, WriteTimeout: writing, IdleTimeout: time.Minute}
}

// refuseAfter this long, a start tells pushes to wait.
const refuseAfter = time.Second

// refuse answers pushes with 503 until ctx ends, during a long start: while the journal
// waits for its disk, or reads back its records.
func (r *process) refuse(ctx context.Context) {
	select {
	case <-ctx.Done():
		return
	case <-time.After(refuseAfter):
	}
	server := &http.Server{
		ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 5 * time.Second, WriteTimeout: 5 * time.Second,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", "5")
			w.Header().Set("Connection", "close")
			http.Error(w, "the relay is starting", http.StatusServiceUnavailable)
		}),
	}
	defer context.AfterFunc(ctx, func() { _ = server.Close() })()
	door, err := r.listen(ctx, r.cfg().Ingest.Listen, server, r.ingestDoor(openFiles()))
	if err != nil {
		return // startIngest meets and reports it
	}
	defer func() { _ = door.Close() }()
	var listener net.Listener = door
	if tlsConfig, err := r.cfg().Ingest.TLS.ServerConfig(); err == nil && tlsConfig != nil {
		listener = tls.NewListener(listener, tlsConfig)
	}
	_ = server.Serve(listener) // until Close
}

// startIngest begins to take pushes.
func (r *process) startIngest(ctx context.Context) (err error) {
	options := ingest.Options{
		Credentials: r.credentials, Journal: r.journal, Limits: r.ingestLimits(), IDKey: ingest.OpenIDKey(ctx, r.store.Table(), r.log),
		Anonymous: anonymous(r.cfg().Ingest), Arrivals: r.arrivals, Logger: r.log, Registerer: r.reg, Tracer: r.tracer,
		Room: r.journal.Reserve, Quotas: quotas(r.cfg().Environments),
	}
	if r.recent != nil {
		options.Recent = r.recent
	}
	r.ingest = ingest.New(options)
	r.addresses.Ingest, err = r.serve(ctx, &r.stack, r.cfg().Ingest.Listen, r.cfg().Ingest.TLS.ServerConfig, r.ingest.Server(), r.ingestDoor(openFiles()))
	return err
}

func quotas(environments []config.Environment) map[credentials.Environment]config.Quota {
	all := map[credentials.Environment]config.Quota{}
	for _, e := range environments {
		all[credentials.EnvironmentOf(e)] = e.Quota
	}
	return all
}

func anonymous(cfg config.Ingest) credentials.Environment {
	project, environment, _ := strings.Cut(cfg.Anonymous, "/")
	return credentials.Environment{Project: project, Environment: environment}
}

// socketOf is the socket of a listener. Only that of the pushes can outlive the process.
func (r *process) socketOf(listener string) *Socket {
	if listener == ingestListener && r.socket != nil {
		return r.socket
	}
	return NewSocket(nil)
}

// listen opens a listener with a door before it; the server reports to the door.
func (r *process) listen(ctx context.Context, address string, server *http.Server, o connlimit.Options) (*connlimit.Door, error) {
	listener, err := r.socketOf(o.Name).listen(ctx, address)
	if err != nil {
		return nil, listenError(o.Name, address, err)
	}
	o.Metrics, o.Logger = r.connections, r.log
	d := connlimit.New(listener, o)
	d.Guard(server)
	return d, nil
}

// serve listens, with TLS if that is configured, and serves until a stack is unwound. Requests under
// way are then given a part of the remaining time.
func (r *process) serve(ctx context.Context, of *stack, address string, secured func() (*tls.Config, error), server *http.Server, o connlimit.Options) (string, error) {
	tlsConfig, err := secured()
	if err != nil {
		return "", fmt.Errorf("%s: %w", o.Name, err)
	}
	listener, err := r.listen(ctx, address, server, o)
	if err != nil {
		return "", err
	}
	bye := &farewell{next: server.Handler}
	server.Handler = bye
	bound := listener.Addr().String()
	server.TLSConfig = tlsConfig
	accept := func() error { return server.Serve(listener) }
	if tlsConfig != nil { // its certificates come from the config itself
		accept = func() error { return server.ServeTLS(listener, "", "") }
	}
	go func() {
		if err := accept(); !errors.Is(err, http.ErrServerClosed) && !bye.begun.Load() {
			r.fail(fmt.Errorf("%s listener on %s: %w", o.Name, bound, err))
		}
	}()
	of.push(o.Name+" listener", func(ctx context.Context) error {
		polite, cancel := portion(ctx, 3)
		defer cancel()
		outlived, err := r.socketOf(o.Name).outlive(listener.Listener)
		if outlived {
			bye.say(polite, listener)
		}
		if server.Shutdown(polite) == nil {
			return err
		}
		return errors.Join(err, server.Close()) // cuts off who is slow; nothing was acknowledged to them
	})
	return bound, nil
}

// portion returns the n-th part of ctx's remaining time.
func portion(ctx context.Context, n int) (context.Context, context.CancelFunc) {
	deadline, ok := ctx.Deadline()
	if !ok {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, time.Until(deadline)/time.Duration(n))
}

// ingestLimits are those of the configuration, except for lines too long for the
// journal's server: so such a line is refused by itself, and its neighbours are kept.
func (r *process) ingestLimits() config.IngestLimits {
	limits := r.cfg().Ingest.Limits
	if most := config.Size(r.journal.MaxEvent() - attributesRoom); limits.LineBytes > most {
		r.log.Warn("the journal's NATS takes smaller messages than ingest.limits.line_bytes allows; longer lines are refused",
			"line_bytes", limits.LineBytes, "longest", most)
		limits.LineBytes = most
	}
	return limits
}

// listenError names the field of an unusable address, and a remedy.
func listenError(name, address string, err error) error {
	advice := ""
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		advice = "; end the process listening there, such as another relay, or set another port"
	case errors.Is(err, syscall.EACCES):
		advice = "; ports below 1024 need the capability CAP_NET_BIND_SERVICE, as in deploy/systemd; give it, or set a higher port"
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		advice = "; this machine has no such address; set one of its own"
	}
	return fmt.Errorf("%s.listen %s: %w%s", name, address, err, advice)
}

// The need for descriptors besides the connections of clients.
const (
	ownDescriptors     = 64 // the journal's and the trail's files, the console, the API's connections
	adminConnections   = 32 // and of the trail's own listener, likewise
	sinkDescriptors    = 16 // of one delivery: its connections and files
	fewestConnections  = 16
	mostConnections    = 4096 // unless the configuration asks for more
	addressConnections = 2    // one address may have the total divided by this
)

// openFiles is the process's limit of open files. Go has raised the soft
// limit to the hard one when the process started.
func openFiles() int {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return 1024 // the usual least
	}
	return int(min(limit.Cur, 1<<30))
}

// ingestDoor bounds the connections of clients: the configured number, as far as
// descriptors are left for everything else.
func (r *process) ingestDoor(files int) connlimit.Options {
	reserve := ownDescriptors + adminConnections*2 // the trail's listener has as many
	for _, s := range r.cfg().Sinks {
		reserve += sinkDescriptors * s.Parallel
	}
	asked, room := r.cfg().Ingest.Connections, max(files-reserve, fewestConnections)
	o := connlimit.Options{Name: ingestListener, Total: asked.Total, PerAddress: asked.PerAddress}
	if o.Total == 0 {
		o.Total = min(room, mostConnections)
	}
	if o.Total > room {
		r.log.Warn("the limit of open files leaves less room than ingest.connections.total asks for; raise it (ulimit -n, LimitNOFILE)",
			"asked", o.Total, "connections", room, "open_files", files, "reserved", reserve)
		o.Total = room
	}
	if files < reserve+fewestConnections {
		r.log.Warn("the limit of open files is too low for this configuration; raise it (ulimit -n, LimitNOFILE)",
			"open_files", files, "needed", reserve+fewestConnections)
	}
	if o.PerAddress == 0 && !r.cfg().Ingest.BehindProxy {
		o.PerAddress = max(o.Total/addressConnections, 1)
	}
	return o
}

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
