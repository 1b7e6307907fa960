package cluster

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"sync"
	"time"

	"github.com/auditrelay/auditrelay/internal/retry"
	"github.com/auditrelay/auditrelay/internal/store"
)

const (
	// watchInterval is how often a watch asks for new values.
	watchInterval = 50 * time.Millisecond
	// firstPatience bounds a question of a watch, and an attempt of a put. What a lost server leaves
	// without an answer is asked again before other relays are taken for dead. A slow one is given
	// twice as long each time, up to attemptTimeout: otherwise nobody would hear it at all.
	firstPatience = time.Second
)

// Watch implements [store.Table]. It asks the leader for what was written since it asked last,
// and waits while the servers are away.
func (t *Table) Watch(ctx context.Context, prefix string) iter.Seq2[store.Value, error] {
	return func(yield func(store.Value, error) bool) {
		seen := map[string]uint64{} // revisions, by key
		seq, losses, patience := uint64(1), 0, firstPatience
		for {
			if now := t.known().losses; now != losses {
				seq, losses = 1, now // sequences are given to other values
			}
			round, cancel := context.WithTimeout(ctx, patience)
			next, err := t.scan(round, seq, prefix, func(v store.Value) bool {
				rev, known := seen[v.Key]
				seen[v.Key] = v.Rev
				return rev == v.Rev || v.Data == nil && !known || yield(v, nil)
			})
			cancel()
			switch {
			case errors.Is(err, errEnough):
				return
			case err != nil && (ctx.Err() != nil || t.store.ctx.Err() != nil || errors.Is(err, ErrVersion)):
				yield(store.Value{}, t.store.closedOr(err))
				return
			case err != nil:
				t.store.log.Debug("watching the table was interrupted, and goes on", "error", err)
				patience = min(2*patience, attemptTimeout)
			default:
				patience = firstPatience
			}
			seq = next
			if err := retry.Sleep(ctx, watchInterval); err != nil {
				yield(store.Value{}, err)
				return
			}
		}
	}
}

// errEnough means that the caller wants no more.
var errEnough = errors.New("the caller wants no more")

// scan calls take with the values of a prefix whose messages stand at a sequence or later, until
// it returns false. A value that is written meanwhile is given again. The sequence that it
// returns is where another scan goes on. As long as it finds messages, it asks for more of them at
// once. It passes over those of other groups of keys: sinks store their positions many times a
// second, and whoever waits for an epoch reads none of that.
func (t *Table) scan(ctx context.Context, seq uint64, prefix string, take func(store.Value) bool) (next uint64, err error) {
	for many := 0; ; many = min(2*many+1, watchAhead) {
		first, err := t.store.nextOf(ctx, t.stream, seq, t.filter(prefix))
		if errors.Is(err, errMissing) {
			return seq, nil
		}
		if err != nil {
			return seq, err
		}
		for _, got := range append([]message{first}, t.following(ctx, first.Seq, many)...) {
			v, err := t.value(got)
			switch {
			case errors.Is(err, ErrVersion):
				return seq, fmt.Errorf("read the table: %w", err)
			case err != nil:
				t.tellDamage(got)
			case t.subject(v.Key) == got.Subject && strings.HasPrefix(v.Key, prefix) && !take(v):
				return seq, errEnough
			}
			seq = got.Seq + 1
		}
	}
}

// watchAhead is how many messages a watch asks for at once.
const watchAhead = 31

// following asks for so many messages after a sequence, all at once, and returns those before the
// first that is not there: it was replaced, or is still to be written.
func (t *Table) following(ctx context.Context, after uint64, many int) []message {
	all, failed := make([]message, many), make([]error, many)
	var asking sync.WaitGroup
	for i := range all {
		asking.Go(func() {
			all[i], failed[i] = t.store.ask(ctx, t.stream, query{Seq: after + 1 + uint64(i)})
		})
	}
	asking.Wait()
	for i, err := range failed {
		if err != nil {
			return all[:i]
		}
	}
	return all
}
