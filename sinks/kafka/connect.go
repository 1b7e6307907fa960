package kafka

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"
	"github.com/segmentio/kafka-go/protocol/apiversions"
)

// connect dials, secures, and negotiates. ctx bounds all of it.
func (t *transport) connect(ctx context.Context, broker string) (*conn, error) {
	raw, err := t.dialer.DialContext(ctx, "tcp", broker)
	if err != nil {
		return nil, err
	}
	c := &conn{broker: broker, raw: raw}
	if err := t.track(c); err != nil {
		_ = raw.Close()
		return nil, err
	}
	if err := t.open(ctx, c); err != nil {
		t.release(c, false)
		return nil, err
	}
	return c, nil
}

func (t *transport) open(ctx context.Context, c *conn) error {
	stream, err := t.secure(ctx, c)
	if err != nil {
		return err
	}
	c.frames = newFramed(stream)
	c.Conn = protocol.NewConn(c.frames, t.clientID)
	if err := c.negotiate(ctx); err != nil {
		return err
	}
	if t.sasl == nil {
		return nil
	}
	return c.authenticate(ctx, t.sasl)
}

// secure returns the connection itself, or TLS over it if configured.
func (t *transport) secure(ctx context.Context, c *conn) (net.Conn, error) {
	if t.tls == nil {
		return c.raw, nil
	}
	cfg := t.tls
	if cfg.ServerName == "" {
		host, _, err := net.SplitHostPort(c.broker)
		if err != nil {
			return nil, err
		}
		cfg = cfg.Clone()
		cfg.ServerName = host
	}
	stream := tls.Client(c.raw, cfg)
	if err := stream.HandshakeContext(ctx); err != nil {
		return nil, fmt.Errorf("tls handshake: %w", err)
	}
	return stream, nil
}

// negotiate settles the version of each API.
func (c *conn) negotiate(ctx context.Context) error {
	m, err := c.roundTrip(ctx, new(apiversions.Request))
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		// Listeners hang up on unknown protocols.
		return fmt.Errorf("negotiate API versions: the peer hung up: check the port, and whether it expects TLS: %w", err)
	}
	if err != nil {
		return fmt.Errorf("negotiate API versions: %w", err)
	}
	res, ok := m.(*apiversions.Response)
	if !ok {
		return errors.New("negotiate API versions: unexpected answer")
	}
	if res.ErrorCode != 0 {
		return fmt.Errorf("negotiate API versions: %w", kafka.Error(res.ErrorCode))
	}
	c.versions = make(map[protocol.ApiKey]int16, len(res.ApiKeys))
	for _, k := range res.ApiKeys {
		key := protocol.ApiKey(k.ApiKey)
		c.versions[key] = key.SelectVersion(k.MinVersion, k.MaxVersion)
	}
	c.SetVersions(c.versions)
	return nil
}
