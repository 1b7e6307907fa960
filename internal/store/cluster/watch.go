package cluster

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/auditrelay/auditrelay/internal/retry"
	"github.com/auditrelay/auditrelay/internal/store"
)

// Watch implements [store.Table]. After a fault it looks at all values again, and passes on
// those that are others than before.
func (t *Table) Watch(ctx context.Context, prefix string) iter.Seq2[store.Value, error] {
	return func(yield func(store.Value, error) bool) {
		w := &watch{table: t, prefix: prefix, seen: map[string]uint64{}}
		for {
			err := w.follow(ctx, yield)
			switch {
			case errors.Is(err, errEnough):
				return
			case ctx.Err() != nil:
				yield(store.Value{}, ctx.Err())
				return
			case t.store.ctx.Err() != nil:
				yield(store.Value{}, store.ErrClosed)
				return
			case errors.Is(err, ErrVersion):
				yield(store.Value{}, err)
				return
			}
			t.store.log.Debug("watching the table was interrupted, and begins again", "error", err)
			if err := retry.Sleep(ctx, retryPause); err != nil {
				yield(store.Value{}, err)
				return
			}
		}
	}
}

// errEnough means that the caller wants no more.
var errEnough = errors.New("the caller wants no more")

type watch struct {
	table  *Table
	prefix string
	seen   map[string]uint64 // revisions, by key
}

// follow passes on the newest value of each key, and then changes, until something fails.
func (w *watch) follow(ctx context.Context, yield func(store.Value, error) bool) error {
	t, session := w.table, w.table.store.session()
	consumer, err := t.store.js.OrderedConsumer(ctx, t.stream, jetstream.OrderedConsumerConfig{
		FilterSubjects: []string{t.stream + ".key.*", t.stream + ".b64.*"}, DeliverPolicy: jetstream.DeliverLastPerSubjectPolicy,
	})
	if err != nil {
		return fmt.Errorf("watch the table: %w", err)
	}
	messages, err := consumer.Messages()
	if err != nil {
		return fmt.Errorf("watch the table: %w", err)
	}
	defer messages.Stop()
	defer context.AfterFunc(session, messages.Stop)()
	for {
		m, err := messages.Next(jetstream.NextContext(ctx))
		if errors.Is(err, jetstream.ErrNoHeartbeat) {
			continue // the consumer is made again by itself
		}
		if err != nil {
			return fmt.Errorf("watch the table: %w", err)
		}
		if err := w.pass(m, yield); err != nil {
			return err
		}
	}
}

// pass passes a value on, unless it is known or has another prefix.
func (w *watch) pass(m jetstream.Msg, yield func(store.Value, error) bool) error {
	meta, err := m.Metadata()
	if err != nil {
		return err
	}
	v, err := w.table.value(message{seq: meta.Sequence.Stream, data: m.Data()})
	if errors.Is(err, ErrVersion) {
		return err
	}
	rev, known := w.seen[v.Key]
	if err != nil || !strings.HasPrefix(v.Key, w.prefix) || rev == v.Rev {
		return nil //nolint:nilerr // [Table.Get] tells of a damaged one
	}
	w.seen[v.Key] = v.Rev
	if v.Data == nil && !known {
		return nil
	}
	if !yield(v, nil) {
		return errEnough
	}
	return nil
}
