package nats

import (
	"net"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/config/secret"
	"github.com/auditrelay/auditrelay/internal/testbed/natstest"
	"github.com/auditrelay/auditrelay/relay/relaytest"
)

const (
	testUser     = "relay"
	testPassword = "correct-horse-battery"
	testStream   = "EVENTS"
)

// startServer runs a NATS server with JetStream on file storage.
func startServer(tb testing.TB, change func(*server.Options)) *server.Server {
	tb.Helper()
	return natstest.Run(tb, tb.TempDir(), func(o *server.Options) {
		o.Username, o.Password = testUser, testPassword
		if change != nil {
			change(o)
		}
	})
}

func dial(tb testing.TB, srv *server.Server, options ...natsgo.Option) *natsgo.Conn {
	tb.Helper()
	nc, err := natsgo.Connect(srv.ClientURL(), append(options, natsgo.UserInfo(testUser, testPassword))...)
	require.NoError(tb, err)
	tb.Cleanup(nc.Close)
	return nc
}

func createTestStream(tb testing.TB, nc *natsgo.Conn, change func(*jetstream.StreamConfig)) jetstream.Stream {
	tb.Helper()
	cfg := jetstream.StreamConfig{Name: testStream, Subjects: []string{"auditrelay.>"}, Storage: jetstream.FileStorage}
	if change != nil {
		change(&cfg)
	}
	js, err := jetstream.New(nc)
	require.NoError(tb, err)
	stream, err := js.CreateStream(tb.Context(), cfg)
	require.NoError(tb, err)
	return stream
}

func newSink(tb testing.TB, address string, change func(*config.NATS)) *Sink {
	tb.Helper()
	return newSinkWith(tb, address, Options{}, change)
}

func newSinkWith(tb testing.TB, address string, opts Options, change func(*config.NATS)) *Sink {
	tb.Helper()
	cfg := config.NATS{URL: "nats://" + address, Username: testUser, Password: secret.New(testPassword)}
	if change != nil {
		change(&cfg)
	}
	s, err := New(complete(tb, cfg), opts)
	require.NoError(tb, err)
	tb.Cleanup(func() { _ = s.Close() })
	return s
}

// arrived reads a whole stream back.
func arrived(tb testing.TB, stream jetstream.Stream) []relaytest.Arrival {
	tb.Helper()
	consumer, err := stream.OrderedConsumer(tb.Context(), jetstream.OrderedConsumerConfig{})
	require.NoError(tb, err)
	info, err := stream.Info(tb.Context())
	require.NoError(tb, err)
	out := make([]relaytest.Arrival, 0, info.State.Msgs)
	for uint64(len(out)) < info.State.Msgs {
		batch, err := consumer.Fetch(int(min(info.State.Msgs-uint64(len(out)), 1000)))
		require.NoError(tb, err)
		for m := range batch.Messages() {
			out = append(out, arrival(tb, m.Headers(), m.Data()))
		}
		require.NoError(tb, batch.Error())
	}
	return out
}

// arrival decodes a message by the binding.
func arrival(tb testing.TB, header natsgo.Header, body []byte) relaytest.Arrival {
	tb.Helper()
	a := relaytest.Arrival{Body: body, Attributes: map[string]string{}}
	for name, values := range header {
		if attribute, ok := strings.CutPrefix(name, "ce-"); ok {
			value, err := url.PathUnescape(values[0])
			require.NoError(tb, err)
			a.Attributes[attribute] = value
		}
	}
	a.ID = a.Attributes["id"]
	return a
}

// proxy stands between the sink and the server, and fails on demand.
type proxy struct {
	tb      testing.TB
	target  string
	address string

	mu       sync.Mutex // guards the fields below
	listener net.Listener
	conns    []net.Conn
	stalled  bool
}

func newProxy(tb testing.TB, target string) *proxy {
	tb.Helper()
	p := &proxy{tb: tb, target: target, address: "127.0.0.1:0"}
	p.up()
	tb.Cleanup(p.down)
	return p
}

func (p *proxy) up() {
	l, err := net.Listen("tcp", p.address)
	require.NoError(p.tb, err)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.listener, p.address = l, l.Addr().String()
	go p.accept(l)
}

func (p *proxy) down() {
	p.mu.Lock()
	defer p.mu.Unlock()
	_ = p.listener.Close()
	for _, c := range p.conns {
		_ = c.Close()
	}
	p.conns = nil
}

// stall lets no answer through from now on, and reads nothing more.
func (p *proxy) stall() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stalled = true
}

func (p *proxy) isStalled() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.stalled
}

func (p *proxy) accept(l net.Listener) {
	for {
		client, err := l.Accept()
		if err != nil {
			return
		}
		upstream, err := net.Dial("tcp", p.target)
		if err != nil {
			_ = client.Close()
			continue
		}
		p.mu.Lock()
		p.conns = append(p.conns, client, upstream)
		p.mu.Unlock()
		go p.copy(upstream, client)
		go p.copy(client, upstream)
	}
}

func (p *proxy) copy(dst, src net.Conn) {
	buf := make([]byte, 16<<10)
	for {
		n, err := src.Read(buf)
		if p.isStalled() {
			return // both ends stay open, and nothing moves
		}
		if _, werr := dst.Write(buf[:n]); err != nil || werr != nil {
			_ = src.Close()
			_ = dst.Close()
			return
		}
	}
}

// complete fills in the defaults of a section, as the configuration does.
func complete(t testing.TB, cfg config.NATS) config.NATS {
	t.Helper()
	require.NoError(t, (&config.Sink{Name: "test", NATS: &cfg}).Complete())
	return cfg
}
