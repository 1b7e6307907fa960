package kafka

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol/saslauthenticate"
	"github.com/segmentio/kafka-go/protocol/saslhandshake"
	"github.com/segmentio/kafka-go/sasl"
)

// authenticate runs a SASL exchange. Only the broker's code of a failure is passed on, since
// its message could quote our credentials.
func (c *conn) authenticate(ctx context.Context, mechanism sasl.Mechanism) error {
	m, err := c.roundTrip(ctx, &saslhandshake.Request{Mechanism: mechanism.Name()})
	if err != nil {
		return fmt.Errorf("sasl handshake: %w", err)
	}
	if res, ok := m.(*saslhandshake.Response); ok && res.ErrorCode != 0 {
		return fmt.Errorf("sasl handshake for %s: %w", mechanism.Name(), kafka.Error(res.ErrorCode))
	}
	session, message, err := mechanism.Start(ctx)
	if err != nil {
		return errors.New("sasl: the mechanism did not start")
	}
	for done := false; !done; {
		challenge, err := c.exchange(ctx, message)
		if err != nil {
			return fmt.Errorf("sasl authentication by %s: %w", mechanism.Name(), err)
		}
		if n := iterations(challenge); n > mostIterations {
			return fmt.Errorf("sasl authentication by %s: the broker asks for %d iterations, and the sink does at most %d", mechanism.Name(), n, mostIterations)
		}
		if done, message, err = session.Next(ctx, challenge); err != nil {
			return fmt.Errorf("sasl authentication by %s: the broker's proof is wrong: %w",
				mechanism.Name(), kafka.SASLAuthenticationFailed)
		}
	}
	return nil
}

// mostIterations bounds what a SCRAM exchange costs: they take half a second, and heed no context.
// Kafka's default is 4096.
const mostIterations = 1_000_000

// iterations is how many a broker asks for in a message of a SCRAM exchange (RFC 5802, 5.1); 0 if it
// does not.
func iterations(challenge []byte) int {
	for field := range bytes.SplitSeq(challenge, []byte(",")) {
		if count, ok := bytes.CutPrefix(field, []byte("i=")); ok {
			n, _ := strconv.Atoi(string(count)) // one too large for an int is the largest
			return n
		}
	}
	return 0
}

func (c *conn) exchange(ctx context.Context, message []byte) ([]byte, error) {
	m, err := c.roundTrip(ctx, &saslauthenticate.Request{AuthBytes: message})
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		// Some brokers refuse by hanging up.
		return nil, kafka.SASLAuthenticationFailed
	}
	if err != nil {
		return nil, err
	}
	res, ok := m.(*saslauthenticate.Response)
	if !ok {
		return nil, errors.New("unexpected answer")
	}
	if res.ErrorCode != 0 {
		return nil, kafka.Error(res.ErrorCode)
	}
	return res.AuthBytes, nil
}
