package streams

import (
	"context"
	"sync"
	"time"
)

const (
	// keptFor this long, an answer is given again: however often somebody scrapes the
	// metrics, the servers are asked once a second.
	keptFor = time.Second
	// askTimeout bounds one question.
	askTimeout = 2 * time.Second
)

// Kept is an answer of a server, asked again when it is older than a second. It is safe for
// concurrent use.
type Kept[T any] struct {
	ask func(context.Context) (T, error)

	mu    sync.Mutex // held while asking: several callers share the answer
	at    time.Time
	value T
	err   error
}

// Keep returns a Kept; ask is called at the first Get.
func Keep[T any](ask func(context.Context) (T, error)) *Kept[T] { return &Kept[T]{ask: ask} }

// Get returns the answer, or the error of the last question.
func (k *Kept[T]) Get() (T, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.at.IsZero() || time.Since(k.at) >= keptFor {
		ctx, cancel := context.WithTimeout(context.Background(), askTimeout)
		defer cancel()
		k.value, k.err = k.ask(ctx)
		k.at = time.Now()
	}
	return k.value, k.err
}
