package ingest

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/auditrelay/auditrelay/config/secret"
	"github.com/auditrelay/auditrelay/internal/retry"
	"github.com/auditrelay/auditrelay/internal/store"
)

const (
	idKeyName  = "key/event-id"
	idKeyBytes = 32
	idKeyTries = 50
	// idKeyPause is the wait between two tries, after another relay was first.
	idKeyPause = 200 * time.Millisecond
)

// OpenIDKey reads the key of the hashes for events without an id of their own, or makes
// one. Without a key, a hash would confirm a guess of the redacted parts of a body.
//
// Every relay with the same store has the same key. If none can be read or kept, it returns
// one for this process alone. Then events that are pushed again are stored again, and
// nothing worse happens.
//
// A crash after the key is made and before it is kept loses no event's id: ingest begins
// later.
func OpenIDKey(ctx context.Context, table store.Table, log *slog.Logger) secret.Text {
	key, err := keepIDKey(ctx, table, log)
	if err != nil {
		key = newIDKey()
		log.Error("the key of event ids cannot be read; events without an id get one by a key of this process, and are stored again when they are pushed again after its end", "error", err)
	}
	return secret.New(string(key))
}

// keepIDKey reads the key from the table, or makes one there. Of several relays at the same
// time the first wins.
func keepIDKey(ctx context.Context, table store.Table, log *slog.Logger) ([]byte, error) {
	for try := 1; ; try++ {
		v, err := table.Get(ctx, idKeyName)
		if err != nil {
			return nil, fmt.Errorf("read the key of event ids: %w", err)
		}
		if len(v.Data) == idKeyBytes {
			return v.Data, nil
		}
		key := newIDKey()
		_, err = table.Put(ctx, idKeyName, key, store.If{Key: idKeyName, Rev: v.Rev})
		switch lost := v.Doubtful || v.Data != nil; {
		case err == nil && lost:
			log.Warn("the key of event ids was lost or damaged, and a new one is made: events without an id that were pushed before are not recognised when they are pushed again")
			return key, nil
		case err == nil:
			log.Info("made the key for ids of events without one, as at a first start")
			return key, nil
		}
		if !errors.Is(err, store.ErrConflict) || try == idKeyTries {
			return nil, fmt.Errorf("keep the key of event ids: %w", err)
		}
		if err := retry.Sleep(ctx, idKeyPause); err != nil {
			return nil, err
		}
	}
}

func newIDKey() []byte {
	key := make([]byte, idKeyBytes)
	_, _ = rand.Read(key) // never fails
	return key
}
