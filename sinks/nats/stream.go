package nats

import (
	"context"
	"errors"
	"fmt"
	"time"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// duplicateWindow is how long a stream that the sink creates recognises a message id. It is the
// server's own default; the server keeps all ids of the window in memory.
const duplicateWindow = 2 * time.Minute

// createStream makes the stream for the subjects of a template if it is missing, with one
// replica in file storage and no limits. An existing stream stays as it is.
func createStream(ctx context.Context, nc *natsgo.Conn, name string, subject *subject) error {
	js, err := jetstream.New(nc)
	if err != nil {
		return fmt.Errorf("create stream %s: %w", name, err)
	}
	_, err = js.Stream(ctx, name)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		_, err = js.CreateStream(ctx, jetstream.StreamConfig{
			Name:        name,
			Description: "Events delivered by auditrelay",
			Subjects:    []string{subject.pattern()},
			Storage:     jetstream.FileStorage,
			Duplicates:  duplicateWindow,
		})
	}
	if err != nil && !errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) {
		return fmt.Errorf("create stream %s: %w", name, err)
	}
	return nil
}
