package streamserver

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/auditrelay/auditrelay/config"
)

// oldClusterPatience bounds the look into the cluster of an old configuration.
const oldClusterPatience = 10 * time.Second

// leftInCluster looks into an external journal with the present credentials. A failed
// look is a doubt, not an error: a person can still let the journal go.
func leftInCluster(ctx context.Context, old Home, cfg config.Journal) Left {
	ctx, cancel := context.WithTimeout(ctx, oldClusterPatience)
	defer cancel()
	left, err := readCluster(ctx, old, cfg)
	if err != nil {
		left.Doubt = fmt.Sprintf("it could not be looked into: %v", err)
	}
	return left
}

func readCluster(ctx context.Context, old Home, cfg config.Journal) (left Left, err error) {
	cfg.URL = old.URL
	opts, err := dialOptions(ctx, cfg)
	if err != nil {
		return left, err
	}
	conn := &Conn{}
	if err := conn.open(opts...); err != nil {
		return left, err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	layout := Layout(old.Prefix)
	dead, err := conn.JetStream.Stream(ctx, layout.DeadLetters)
	if err == nil {
		left.DeadLetters = dead.CachedInfo().State.Msgs
	} else if !errors.Is(err, jetstream.ErrStreamNotFound) {
		return left, err
	}
	events, err := conn.JetStream.Stream(ctx, layout.Events)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return left, nil
	}
	if err != nil {
		return left, err
	}
	return left, readPending(ctx, events, &left)
}

// readPending counts records, not their events. So any record raises a doubt.
func readPending(ctx context.Context, events jetstream.Stream, left *Left) error {
	info := events.CachedInfo()
	pending, sinks := uint64(0), 0
	list := events.ListConsumers(ctx)
	for c := range list.Info() {
		if !strings.HasPrefix(c.Name, SinkConsumers) {
			continue
		}
		sinks++
		if floor := max(c.AckFloor.Stream+1, info.State.FirstSeq); floor <= info.State.LastSeq {
			pending = max(pending, info.State.LastSeq+1-floor)
		}
	}
	if err := list.Err(); err != nil && !errors.Is(err, jetstream.ErrEndOfData) {
		return err
	}
	switch {
	case sinks == 0 && info.State.Msgs > 0:
		pending = info.State.Msgs
	case sinks < info.State.Consumers:
		left.Doubt = fmt.Sprintf("%d of %d sinks' positions could not be read", info.State.Consumers-sinks, info.State.Consumers)
	}
	if pending > 0 && left.Doubt == "" {
		left.Doubt = fmt.Sprintf("%d records of one event or many are undelivered", pending)
	}
	return nil
}
