// Package positions keeps how far each sink has come in the journal.
//
// A position is a durable JetStream consumer of the events' stream; an acknowledgement
// covers all records before it. JetStream writes positions lazily: after a crash one may be
// older than the last acknowledgement, never newer. The relay's watermarks correct it.
//
// Known sinks are those of the configuration, and those in a durable register. A name enters
// the register before its position is made, and leaves it by `sinks retire`. Each position is
// asked for by name, as a list of consumers omits those without a leader, and only the
// leader's answer counts.
package positions

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/internal/streamserver"
)

// ErrNoPosition means there is no position of the sink.
var ErrNoPosition = errors.New("the journal keeps no position of this sink")

// Nobody is the lowest position without any sink.
const Nobody uint64 = math.MaxUint64

// consumerPrefix begins the names of the consumers.
const consumerPrefix = streamserver.SinkConsumers

// Positions is safe for concurrent use.
type Positions struct {
	conn     *streamserver.Conn
	log      *slog.Logger
	stream   jetstream.Stream // of events
	made     int64            // its creation, in ns since 1970
	replicas int
	sinks    []string // of the config
	register *register
	reached  reached
}

// Open opens the positions in the events' stream, for the configured sinks and all in the
// register. cfg must have its defaults.
func Open(ctx context.Context, conn *streamserver.Conn, events jetstream.Stream, cfg config.Journal, sinks []string, log *slog.Logger) (*Positions, error) {
	p := &Positions{
		conn: conn, log: log, stream: events, made: events.CachedInfo().Created.UnixNano(),
		replicas: cfg.Replicas, sinks: sinks, reached: reached{by: map[string]uint64{}},
	}
	var err error
	p.register, err = openRegister(ctx, conn, events, cfg, log)
	return p, err
}

// Any reports whether a sink was known at the last look.
func (p *Positions) Any() bool { return len(p.sinks) > 0 || p.register.any() }

// Adopt adds sinks with a position made by an earlier version, without a register.
func (p *Positions) Adopt(ctx context.Context) error { return p.register.adopt(ctx) }

// Ask asks for the newest acknowledged record of each known sink, and fails if an answer is
// missing. Retired sinks are unknown.
func (p *Positions) Ask(ctx context.Context) (map[string]uint64, error) {
	sinks, err := p.register.read(ctx)
	if err != nil {
		return nil, err
	}
	all := map[string]uint64{}
	for _, sink := range slices.Concat(sinks, p.sinks) {
		if _, asked := all[sink]; asked {
			continue
		}
		info, err := p.ask(ctx, sink)
		if err != nil {
			return nil, err
		}
		all[sink] = info.AckFloor.Stream
	}
	return all, nil
}

// ask asks for one position by name. A new node for it answers too, with an empty one, so
// on a cluster only the leader's answer counts.
func (p *Positions) ask(ctx context.Context, sink string) (*jetstream.ConsumerInfo, error) {
	c, err := p.stream.Consumer(ctx, consumerPrefix+sink)
	if err != nil {
		return nil, fmt.Errorf("ask for the position of sink %s: %w", sink, err)
	}
	info := c.CachedInfo()
	if p.replicas > 1 && (info.Cluster == nil || info.Cluster.Leader == "") {
		return nil, fmt.Errorf("ask for the position of sink %s: no node leads it", sink)
	}
	return info, nil
}

// Lowest is the newest record acknowledged by every known sink, or Nobody.
func (p *Positions) Lowest(ctx context.Context) (uint64, error) {
	all, err := p.Ask(ctx)
	lowest := Nobody
	for sink, answered := range all {
		lowest = min(lowest, p.atMost(sink, answered))
	}
	return lowest, err
}

// atMost bounds a position by the relay's own notes: the server keeps no checksum of
// positions, and a late answer may be older than a step back. Watermarks do not bound an
// external server's positions, as another relay may have read on since.
func (p *Positions) atMost(sink string, answered uint64) uint64 {
	if mark, marked := p.conn.Watermarks.Read(consumerPrefix + sink); marked && p.conn.Embedded() {
		answered = min(answered, mark.Value)
	}
	return min(answered, p.reached.at(sink))
}

// Remove forgets how far a sink has come, so nothing is kept for it. If it comes back, it
// starts at the oldest record. The error wraps ErrNoPosition if there is none. The caller
// makes sure nothing reads for the sink.
func (p *Positions) Remove(ctx context.Context, sink string) error {
	if err := p.remove(ctx, sink); err != nil {
		return fmt.Errorf("remove the position of sink %s: %w", sink, err)
	}
	return nil
}

func (p *Positions) remove(ctx context.Context, sink string) error {
	known, err := p.register.has(ctx, sink)
	if err != nil {
		return err
	}
	// First: the sink would go on from a watermark without a position.
	if err := p.conn.Watermarks.Forget(consumerPrefix + sink); err != nil {
		return err
	}
	err = p.stream.DeleteConsumer(ctx, consumerPrefix+sink)
	if errors.Is(err, jetstream.ErrConsumerNotFound) {
		if !known {
			return ErrNoPosition
		}
		err = nil // an earlier attempt got this far
	}
	if err != nil {
		return err
	}
	return p.register.retire(ctx, sink)
}
