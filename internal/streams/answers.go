package streams

import (
	"errors"
	"slices"

	"github.com/nats-io/nats.go/jetstream"
)

// HasCode reports whether err is an answer of the server with one of the codes.
func HasCode(err error, codes ...jetstream.ErrorCode) bool {
	var api *jetstream.APIError
	return errors.As(err, &api) && slices.Contains(codes, api.ErrorCode)
}

// IsWrongSequence recognises the refusal of a message by its expected last sequence, for
// the stream or for the subject. A replicated stream has its own code for it.
func IsWrongSequence(err error) bool {
	return HasCode(err, jetstream.JSErrCodeStreamWrongLastSequence, jetstream.JSErrCodeStreamWrongLastSequenceConstant)
}
