package nats

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// duplicateWindow is how long a stream that the sink creates recognises a message id. It is the
// server's own default; the server keeps all ids of the window in memory.
const duplicateWindow = 2 * time.Minute

// description tells our streams from others.
const description = "Events delivered by auditrelay"

// createStream makes the stream for the subjects of a template if it is missing, with one
// replica in file storage and no limits. An existing stream stays as it is, unless it is one of
// ours that was made before types had several tokens: then it takes those too.
func createStream(ctx context.Context, nc *natsgo.Conn, name string, subject *subject) error {
	js, err := jetstream.New(nc)
	if err != nil {
		return fmt.Errorf("create stream %s: %w", name, err)
	}
	stream, err := js.Stream(ctx, name)
	if err == nil {
		return widen(ctx, js, stream.CachedInfo().Config, subject)
	}
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		_, err = js.CreateStream(ctx, jetstream.StreamConfig{
			Name:        name,
			Description: description,
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

// widen gives an old stream of ours the subjects that are needed now.
func widen(ctx context.Context, js jetstream.JetStream, c jetstream.StreamConfig, subject *subject) error {
	was, now := oneTokenEach(subject.text), subject.pattern()
	if c.Description != description || was == now || !slices.Equal(c.Subjects, []string{was}) {
		return nil
	}
	c.Subjects = []string{now}
	if _, err := js.UpdateStream(ctx, c); err != nil {
		return fmt.Errorf("let stream %s take the subjects %s: %w", c.Name, now, err)
	}
	return nil
}
