package nats

import (
	"context"
	"errors"
	"fmt"
	"time"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// duplicateWindow is how long a created stream recognises a message id: the
// server's own default. The server remembers all ids of the window in memory.
const duplicateWindow = 2 * time.Minute

// createStream makes the stream over subjects if it is missing, with one replica in file
// storage and no limits. An existing stream stays as it is.
func createStream(ctx context.Context, nc *natsgo.Conn, name, subjects string) error {
	js, err := jetstream.New(nc)
	if err != nil {
		return fmt.Errorf("create stream %s: %w", name, err)
	}
	_, err = js.Stream(ctx, name)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		_, err = js.CreateStream(ctx, jetstream.StreamConfig{
			Name:        name,
			Description: "Events delivered by auditrelay",
			Subjects:    []string{subjects},
			Storage:     jetstream.FileStorage,
			Duplicates:  duplicateWindow,
		})
	}
	if err != nil && !errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) {
		return fmt.Errorf("create stream %s: %w", name, err)
	}
	return nil
}
