package readback

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// NATS is a stream: on a nats-server that is embedded and listens on loopback,
// or on one elsewhere.
type NATS struct {
	// URL is where clients connect.
	URL string

	stream string
	server *server.Server // nil: it is not ours
	conn   *nats.Conn
	js     jetstream.JetStream
}

// StartNATS starts a server that keeps its files in dir; the sink under test makes
// the stream.
func StartNATS(dir, stream string) (*NATS, error) {
	srv, err := server.NewServer(&server.Options{
		Host: "127.0.0.1", Port: server.RANDOM_PORT, NoSigs: true, NoLog: true, JetStream: true, StoreDir: dir,
	})
	if err != nil {
		return nil, fmt.Errorf("configure nats-server: %w", err)
	}
	srv.Start()
	if !srv.ReadyForConnections(10 * time.Second) {
		srv.Shutdown()
		return nil, errors.New("start nats-server: it does not answer")
	}
	d := &NATS{server: srv, URL: srv.ClientURL(), stream: stream}
	return d, d.connect()
}

// ConnectNATS connects to servers that run, several addresses joined with commas.
func ConnectNATS(url, stream string) (*NATS, error) {
	d := &NATS{URL: url, stream: stream}
	return d, d.connect()
}

func (d *NATS) connect() (err error) {
	if d.conn, err = nats.Connect(d.URL); err == nil {
		d.js, err = jetstream.New(d.conn)
	}
	if err != nil {
		d.Close()
		return fmt.Errorf("connect to nats-server: %w", err)
	}
	return nil
}

// Close disconnects, and stops an embedded server.
func (d *NATS) Close() {
	if d.conn != nil {
		d.conn.Close()
	}
	if d.server != nil {
		d.server.Shutdown()
		d.server.WaitForShutdown()
	}
}

// Name implements [Destination].
func (d *NATS) Name() string { return "nats" }

// Count implements [Destination].
func (d *NATS) Count(ctx context.Context) (int64, error) {
	stream, err := d.js.Stream(ctx, d.stream)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return 0, nil // the sink makes it with its first delivery
	}
	if err != nil {
		return 0, err
	}
	return int64(stream.CachedInfo().State.Msgs), nil
}

// Read implements [Destination].
func (d *NATS) Read(ctx context.Context, record func(id string, body []byte)) error {
	n, err := d.Count(ctx)
	if err != nil || n == 0 {
		return err
	}
	consumer, err := d.js.OrderedConsumer(ctx, d.stream, jetstream.OrderedConsumerConfig{})
	if err != nil {
		return err
	}
	messages, err := consumer.Messages(jetstream.PullMaxMessages(2000))
	if err != nil {
		return err
	}
	defer messages.Stop()
	for ; n > 0; n-- {
		msg, err := messages.Next(jetstream.NextContext(ctx))
		if err != nil {
			return err
		}
		record(msg.Headers().Get("ce-id"), msg.Data())
	}
	return nil
}
