package streams

import (
	"errors"
	"fmt"
	"testing"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/assert"

	"github.com/auditrelay/auditrelay/internal/testbed/natstest"
)

func TestIsWrongSequence(t *testing.T) {
	t.Parallel()
	single, replicated := &jetstream.APIError{ErrorCode: 10071}, &jetstream.APIError{ErrorCode: 10164}
	assert.True(t, IsWrongSequence(single))
	assert.True(t, IsWrongSequence(fmt.Errorf("publish: %w", replicated)))
	assert.False(t, IsWrongSequence(&jetstream.APIError{ErrorCode: 10077}))
	assert.False(t, IsWrongSequence(errors.New("no answer")))
	assert.False(t, IsWrongSequence(nil))
}

func TestTheServersRefusalIsRecognised(t *testing.T) {
	t.Parallel()
	js := stream(t, natstest.Run(t, t.TempDir()))
	for i := range 2 {
		_, err := js.Publish(t.Context(), "s", nil, jetstream.WithExpectLastSequencePerSubject(0))
		assert.Equal(t, i > 0, IsWrongSequence(err), "%v", err)
	}
}
