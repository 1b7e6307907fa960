// Package idkey keeps the key of the hashes for events without an id of their own.
// Without a key, a hash would confirm a guess of redacted parts of a body.
package idkey

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/config/secret"
	"github.com/auditrelay/auditrelay/internal/pause"
	"github.com/auditrelay/auditrelay/internal/streams"
)

const (
	keyName  = "event_id"
	keyBytes = 32
	sumBytes = 8 // of the key's SHA-256, behind the key
	tries    = 50
	// retryPause is the wait between two tries: a replica lags, or another relay was first.
	retryPause = 200 * time.Millisecond
)

// Get reads the key, or makes one.
//
// It is kept beside the events, in the journal's own JetStream: embedded, under the data
// directory; on a cluster, every relay with the same journal finds it. Get replaces a
// missing or damaged key, and returns one for this process alone if none can be read or
// kept. Then events pushed again are stored again, and nothing worse.
//
// A crash after the key is made and before it is kept loses no name of an event: ingest
// begins later.
func Get(ctx context.Context, js jetstream.JetStream, cfg config.Journal, log *slog.Logger) secret.Text {
	var key []byte
	err := streams.Await(ctx, log, "the key of event ids", func(ctx context.Context) (err error) {
		key, err = keep(ctx, js, cfg, log)
		return err
	})
	if err != nil {
		key = newKey()
		log.Error("the key of event ids cannot be read; events without an id get one by a key of this process, and are stored again when they are pushed again after its end", "error", err)
	}
	return secret.New(string(key[:keyBytes]))
}

// keep reads the key from its bucket, or makes one there. Of several relays at the
// same time the first wins.
func keep(ctx context.Context, js jetstream.JetStream, cfg config.Journal, log *slog.Logger) ([]byte, error) {
	kv, err := js.CreateOrUpdateKeyValue(ctx, jetstream.KeyValueConfig{
		Bucket: cfg.StreamPrefix + "_KEYS", Description: "auditrelay: the key of the ids of events that bring none",
		History: 1, Storage: jetstream.FileStorage, Replicas: max(1, cfg.Replicas),
	})
	if err != nil {
		return nil, fmt.Errorf("open the bucket of keys: %w", err)
	}
	for try := 1; ; try++ {
		entry, err := kv.Get(ctx, keyName)
		switch {
		case err == nil && isKey(entry.Value()):
			return entry.Value(), nil
		case err == nil:
			log.Warn("the key of event ids is damaged, and a new one is made: events without an id that were pushed before are not recognised when they are pushed again")
			_, err = kv.Update(ctx, keyName, newKey(), entry.Revision())
		case errors.Is(err, jetstream.ErrKeyNotFound):
			log.Info("made the key for ids of events without one, as at a first start; after a loss of the key, an earlier such event that is pushed again looks new")
			_, err = kv.Create(ctx, keyName, newKey())
		}
		if try == tries {
			return nil, fmt.Errorf("read or make the key of event ids: %w", err)
		}
		if err != nil { // another relay was first, or a replica lags
			if err := pause.For(ctx, retryPause); err != nil {
				return nil, err
			}
		}
	}
}

func newKey() []byte {
	key := make([]byte, keyBytes, keyBytes+sumBytes)
	_, _ = rand.Read(key) // never fails
	sum := sha256.Sum256(key)
	return append(key, sum[:sumBytes]...)
}

func isKey(value []byte) bool {
	if len(value) != keyBytes+sumBytes {
		return false
	}
	sum := sha256.Sum256(value[:keyBytes])
	return string(sum[:sumBytes]) == string(value[keyBytes:])
}
