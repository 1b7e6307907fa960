package journal

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/auditrelay/auditrelay/config/secret"
	"github.com/auditrelay/auditrelay/internal/pause"
	"github.com/auditrelay/auditrelay/internal/streams"
	"github.com/auditrelay/auditrelay/internal/streamserver"
)

const (
	idKeyName  = "event_id"
	idKeyBytes = 32
	idKeySum   = 8 // bytes of the key's SHA-256 that stand behind it
	idKeyTries = 50
)

// IDKey gives the key of the hashes that events without an id of their own are
// named by. Without it a hash would tell whoever can guess a body what redaction
// took out of it.
//
// It is kept beside the events, in the journal's own JetStream: embedded, under the
// data directory; on a cluster, where every relay that shares the journal finds it,
// and one that replaces another. A key that is missing or damaged is followed by a
// new one, and one that cannot be read or kept by one for this process: events that
// are pushed again are then stored again, and nothing worse.
//
// A crash after the key is made and before it is kept loses nothing that an event
// was named by: ingest begins after that.
func (j *Journal) IDKey(ctx context.Context) secret.Text {
	var key []byte
	err := streams.Await(ctx, j.log, "the key of event ids", func(ctx context.Context) (err error) {
		key, err = j.idKey(ctx)
		return err
	})
	if err != nil {
		key = newIDKey()
		j.log.Error("the key of event ids cannot be read; events without an id get one by a key of this process, and are stored again when they are pushed again after its end", "error", err)
	}
	return secret.New(string(key[:idKeyBytes]))
}

// idKey reads the key, or makes one. Of several relays that make one at the same
// time the first wins.
func (j *Journal) idKey(ctx context.Context) ([]byte, error) {
	kv, err := j.conn.JetStream.CreateOrUpdateKeyValue(ctx, jetstream.KeyValueConfig{
		Bucket: j.names.keys, Description: "auditrelay: the key of the ids of events that bring none",
		History: 1, Storage: jetstream.FileStorage, Replicas: max(1, j.cfg.Replicas),
	})
	if err != nil {
		return nil, fmt.Errorf("open the bucket of keys: %w", err)
	}
	for try := 1; ; try++ {
		entry, err := kv.Get(ctx, idKeyName)
		switch {
		case err == nil && isIDKey(entry.Value()):
			return entry.Value(), nil
		case err == nil:
			j.log.Warn("the key of event ids is damaged, and a new one is made: events without an id that were pushed before are not recognised when they are pushed again")
			_, err = kv.Update(ctx, idKeyName, newIDKey(), entry.Revision())
		case errors.Is(err, jetstream.ErrKeyNotFound):
			j.log.Info("a key of event ids is made; where there was one, it is lost, and events without an id that were pushed before are not recognised when they are pushed again")
			_, err = kv.Create(ctx, idKeyName, newIDKey())
		}
		if try == idKeyTries {
			return nil, fmt.Errorf("read or make the key of event ids: %w", err)
		}
		if err != nil { // another relay was first, or a replica lags
			if err := pause.For(ctx, streamserver.RetryPause); err != nil {
				return nil, err
			}
		}
	}
}

func newIDKey() []byte {
	key := make([]byte, idKeyBytes, idKeyBytes+idKeySum)
	_, _ = rand.Read(key) // never fails
	sum := sha256.Sum256(key)
	return append(key, sum[:idKeySum]...)
}

func isIDKey(value []byte) bool {
	if len(value) != idKeyBytes+idKeySum {
		return false
	}
	sum := sha256.Sum256(value[:idKeyBytes])
	return string(sum[:idKeySum]) == string(value[idKeyBytes:])
}
