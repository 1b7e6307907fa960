package natstest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/auditrelay/auditrelay/internal/testbed/rig"
)

// Client is a connection to servers. It outlives their restarts.
type Client struct {
	// URL names the servers, several joined with commas.
	URL string

	conn *nats.Conn
	js   jetstream.JetStream
}

// Connect connects to running servers, by their addresses joined with commas.
func Connect(url string) (*Client, error) {
	c := &Client{URL: url}
	return c, c.connect()
}

func (c *Client) connect() error {
	conn, err := nats.Connect(c.URL, nats.MaxReconnects(-1), nats.ReconnectWait(100*time.Millisecond))
	if err != nil {
		return fmt.Errorf("connect to nats-server: %w", err)
	}
	js, err := jetstream.New(conn)
	if err != nil {
		conn.Close()
		return fmt.Errorf("use JetStream: %w", err)
	}
	c.conn, c.js = conn, js
	return nil
}

// JetStream returns the connection's JetStream.
func (c *Client) JetStream() jetstream.JetStream { return c.js }

// Close disconnects.
func (c *Client) Close() {
	if c.conn != nil {
		c.conn.Close()
	}
}

// info describes a stream's cluster; it is nil without one.
func (c *Client) info(ctx context.Context, stream string) (*jetstream.ClusterInfo, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	s, err := c.js.Stream(ctx, stream)
	if err != nil {
		return nil, fmt.Errorf("describe the nats stream %s: %w", stream, err)
	}
	return s.CachedInfo().Cluster, nil
}

// Prefer makes the server of a name the leader of a stream, of a cluster's servers. A stream with a
// single copy stays where it is.
func (c *Client) Prefer(ctx context.Context, stream, server string) error {
	request, err := json.Marshal(map[string]any{"placement": map[string]string{"preferred": server}})
	if err != nil {
		return fmt.Errorf("ask for another leader of %s: %w", stream, err)
	}
	return rig.Until(ctx, electionWithin, server+" leads "+stream, func() bool {
		cluster, err := c.info(ctx, stream)
		if err != nil || cluster == nil {
			return false
		}
		if cluster.Leader == server || len(cluster.Replicas) == 0 {
			return true
		}
		asking, cancel := context.WithTimeout(ctx, askTimeout)
		defer cancel()
		// The next look says more than this answer.
		_, _ = c.conn.RequestWithContext(asking, "$JS.API.STREAM.LEADER.STEPDOWN."+stream, request)
		return false
	})
}

// Stream returns a stream to read back. It need not exist yet.
func (c *Client) Stream(name string) *Stream { return &Stream{Client: c, name: name} }

// Stream is a stream to read back, a destination for package readback.
type Stream struct {
	*Client

	name string
}

// Name returns "nats".
func (s *Stream) Name() string { return "nats" }

// Count returns how many messages the stream has.
func (s *Stream) Count(ctx context.Context) (int64, error) {
	stream, err := s.js.Stream(ctx, s.name)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return 0, nil // the sink makes it with its first delivery
	}
	if err != nil {
		return 0, err
	}
	return int64(stream.CachedInfo().State.Msgs), nil
}

// Read passes each message's CloudEvents id and body to record, from the start.
func (s *Stream) Read(ctx context.Context, record func(id string, body []byte)) error {
	n, err := s.Count(ctx)
	if err != nil || n == 0 {
		return err
	}
	consumer, err := s.js.OrderedConsumer(ctx, s.name, jetstream.OrderedConsumerConfig{})
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
