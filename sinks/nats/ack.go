package nats

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/auditrelay/auditrelay/relay"
)

// errNoStream is what JetStream's silence means: nobody listens to the subject.
var errNoStream = errors.New("no stream takes the subject, or JetStream is not available")

// JetStream's codes of errors that no retry can cure (nats-server errors.json).
const (
	codeMessageTooLarge jetstream.ErrorCode = 10054
	codeHeadersTooLarge jetstream.ErrorCode = 10097
)

// isDuplicate reports whether a stream's acknowledgement calls the message a duplicate.
func isDuplicate(m *natsgo.Msg) bool {
	if !bytes.Contains(m.Data, []byte(`"duplicate"`)) {
		return false
	}
	var ack struct {
		Duplicate bool `json:"duplicate"`
	}
	return json.Unmarshal(m.Data, &ack) == nil && ack.Duplicate
}

// ackError reads a stream's answer to a publish. It is nil if the stream stores the message, or
// had stored it before.
func ackError(m *natsgo.Msg) error {
	if len(m.Data) == 0 && m.Header.Get("Status") == "503" {
		return errNoStream
	}
	// This is the usual answer, up to a hundred thousand times a second.
	name, usual := bytes.CutPrefix(m.Data, []byte(`{"stream":"`))
	if usual && len(name) > 0 && name[0] != '"' && name[len(name)-1] == '}' && !bytes.Contains(name, []byte(`"error"`)) {
		return nil
	}
	var ack struct {
		Stream string              `json:"stream"`
		Error  *jetstream.APIError `json:"error"`
	}
	if err := json.Unmarshal(m.Data, &ack); err != nil {
		return fmt.Errorf("read acknowledgement: %w", err)
	}
	if ack.Error != nil {
		return apiError(ack.Error)
	}
	if ack.Stream == "" {
		return errors.New("read acknowledgement: it names no stream")
	}
	return nil
}

func apiError(e *jetstream.APIError) error {
	err := fmt.Errorf("stream refuses the event: %s (error %d)", e.Description, e.ErrorCode)
	if e.ErrorCode == codeMessageTooLarge || e.ErrorCode == codeHeadersTooLarge {
		return relay.Permanent(err)
	}
	return err
}

// sizeError makes the client's refusal of a message that is too large permanent.
func sizeError(err error, m *natsgo.Msg, nc *natsgo.Conn) error {
	if !errors.Is(err, natsgo.ErrMaxPayload) {
		return err
	}
	return relay.Permanent(fmt.Errorf("the event takes %d bytes with its headers, the server at most %d", m.Size(), nc.MaxPayload()))
}
