package nats

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"strings"
	"sync"
	"time"

	natsgo "github.com/nats-io/nats.go"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/internal/natsguard"
)

// dialer makes connections. It is immutable.
type dialer struct {
	urls    string // may contain credentials, so it never appears in an error
	servers string // the hosts alone, for errors
	options []natsgo.Option

	duplicates prometheus.Counter // nil counts nothing
}

// handshakeTimeout bounds one server's greeting. The context of a delivery
// bounds the whole.
const handshakeTimeout = 5 * time.Second

func newDialer(cfg config.NATS, opts Options) (dialer, error) {
	auth, err := authentication(cfg)
	if err != nil {
		return dialer{}, err
	}
	options := append(auth,
		natsgo.Name(opts.Name),
		// Only the pump retries. If the client reconnected by itself, it would send buffered
		// messages of a delivery that was given up.
		natsgo.NoReconnect(),
		natsgo.Timeout(handshakeTimeout),
		natsgo.SkipHostLookup(), // our dialer does that, and heeds the context
		natsgo.SkipSubjectValidation(),
		natsgo.WriteBufferSize(64<<10),
		natsgo.PingInterval(20*time.Second),
	)
	tlsConfig, err := cfg.TLS.ClientConfig()
	if err != nil {
		return dialer{}, fmt.Errorf("tls: %w", err)
	}
	if tlsConfig != nil {
		options = append(options, natsgo.Secure(tlsConfig))
	}
	return dialer{urls: cfg.URL, servers: hosts(cfg.URL), options: options, duplicates: opts.Duplicates}, nil
}

// hosts returns the addresses without secrets.
func hosts(urls string) string {
	var out []string
	for text := range strings.SplitSeq(urls, ",") {
		if u, err := url.Parse(strings.TrimSpace(text)); err == nil {
			out = append(out, u.Host)
		}
	}
	return strings.Join(out, ",")
}

func authentication(cfg config.NATS) ([]natsgo.Option, error) {
	var options []natsgo.Option
	if cfg.CredentialsFile != "" {
		if _, err := os.Stat(cfg.CredentialsFile); err != nil {
			return nil, fmt.Errorf("credentials_file: %w", err)
		}
		options = append(options, natsgo.UserCredentials(cfg.CredentialsFile))
	}
	if cfg.NKeyFile != "" {
		option, err := natsgo.NkeyOptionFromSeed(cfg.NKeyFile)
		if err != nil {
			return nil, fmt.Errorf("nkey_file %s: %w", cfg.NKeyFile, err)
		}
		options = append(options, option)
	}
	if !cfg.Token.Empty() {
		options = append(options, natsgo.Token(cfg.Token.Reveal()))
	}
	if cfg.Username != "" {
		options = append(options, natsgo.UserInfo(cfg.Username, cfg.Password.Reveal()))
	}
	return options, nil
}

// dial connects; ctx bounds only the connecting.
func (d dialer) dial(ctx context.Context, core bool) (*connection, error) {
	c := newConnection(d.duplicates)
	wire := &wire{ctx: ctx}
	c.wire = wire
	defer context.AfterFunc(ctx, wire.cut)()
	options := append(d.options[:len(d.options):len(d.options)],
		natsgo.SetCustomDialer(wire),
		natsgo.ClosedHandler(func(*natsgo.Conn) { close(c.lost) }),
		natsgo.ErrorHandler(func(_ *natsgo.Conn, _ *natsgo.Subscription, err error) { c.complain(err) }),
	)
	nc, err := natsgo.Connect(d.urls, options...)
	if err == nil {
		c.nc = nc
		err = c.listen(core)
	}
	if failure := wire.failure(); failure != nil && errors.Is(err, natsgo.ErrNoServers) {
		err = fmt.Errorf("%w: %w", err, failure)
	}
	if cause := context.Cause(ctx); cause != nil {
		err = cause
	}
	if err != nil {
		c.close()
		return nil, fmt.Errorf("connect to NATS at %s: %w", d.servers, err)
	}
	return c, nil
}

// wire dials, and can cut the connections it made.
type wire struct {
	ctx context.Context // for connecting

	mu    sync.Mutex // guards the fields below
	conns []net.Conn
	isCut bool
	err   error // of the last dialling, which the client does not pass on
}

// Dial implements natsgo.CustomDialer.
func (w *wire) Dial(network, address string) (net.Conn, error) {
	dialer := net.Dialer{Timeout: handshakeTimeout}
	conn, err := dialer.DialContext(w.ctx, network, address)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.err = err
	if err != nil {
		return nil, err
	}
	if w.isCut {
		_ = conn.Close()
		return nil, net.ErrClosed
	}
	w.conns = append(w.conns, conn)
	return natsguard.Conn(conn), nil
}

// failure is the error of the last dialled address, or nil.
func (w *wire) failure() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}

// cut ends the connections at once. Unsent bytes are thrown away, which a plain close would go
// on sending. A goroutine that is blocked in a read or a write is released.
func (w *wire) cut() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.isCut = true
	for _, conn := range w.conns {
		if tcp, ok := conn.(*net.TCPConn); ok {
			_ = tcp.SetLinger(0)
		}
		_ = conn.Close()
	}
}
