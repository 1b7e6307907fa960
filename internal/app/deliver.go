package app

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/internal/audit"
	"github.com/auditrelay/auditrelay/internal/json/jsondiff"
	"github.com/auditrelay/auditrelay/internal/record"
	"github.com/auditrelay/auditrelay/relay"
	"github.com/auditrelay/auditrelay/sinks"
)

// startSinks opens each sink and its position, and then starts the pumps.
func (r *process) startSinks(ctx context.Context) error {
	metrics := relay.NewMetrics(r.reg)
	var pumps []*relay.Pump
	for _, cfg := range r.cfg.Sinks {
		pump, err := r.openSink(ctx, cfg)
		if err != nil {
			return err
		}
		pump.Metrics = metrics
		pumps = append(pumps, pump)
	}
	r.stack.push("pumps", background(func(ctx context.Context) {
		var running sync.WaitGroup
		for _, pump := range pumps {
			running.Go(func() {
				if err := pump.Run(ctx); ctx.Err() == nil {
					r.fail(err)
				}
			})
		}
		running.Wait()
	}))
	return nil
}

func (r *process) openSink(ctx context.Context, cfg config.Sink) (*relay.Pump, error) {
	var instances []relay.Sink
	for range max(1, cfg.Parallel) {
		sink, err := sinks.Open(cfg, r.sinkDeps())
		if err != nil {
			return nil, err
		}
		r.stack.push("sink "+cfg.Name, func(context.Context) error { return sink.Close() })
		instances = append(instances, sink)
	}
	r.live[cfg.Name] = instances[0]
	limit := relay.BatchLimit{Events: cfg.BatchEvents, Bytes: int(cfg.BatchBytes)}
	source, err := r.journal.Source(ctx, cfg.Name, limit)
	if err != nil {
		return nil, err
	}
	r.stack.push("position of sink "+cfg.Name, func(context.Context) error { source.Close(); return nil })
	return &relay.Pump{
		Name: cfg.Name, Source: source, Sink: instances[0], Parallel: instances[1:], DeadLetters: r.letters,
		Limit: limit, Timeout: cfg.Timeout, Logger: r.log,
	}, nil
}

// startForwarding puts each entry of the audit trail into the journal, so every sink
// gets it too. A crash between the two is harmless: the trail's follower asks again,
// and the event has the same id.
func (r *process) startForwarding(context.Context) error {
	forward := func(ctx context.Context, _ int64, e audit.Entry) error {
		event, err := r.auditEvent(e)
		if err != nil {
			return err
		}
		var b record.Batch
		b.AddEvent(&event)
		return r.journal.Append(ctx, &b)
	}
	r.stack.push("audit events", background(func(ctx context.Context) {
		if err := r.trail.Follow(ctx, "journal", forward); ctx.Err() == nil {
			r.fail(err)
		}
	}))
	return nil
}

// auditEvent makes an entry an event: the same one at each call, except for its arrival.
func (r *process) auditEvent(e audit.Entry) (relay.Event, error) {
	return eventOf(r.trail.NameOf(e.Index), e.Index, e, min(maxAuditEvent, r.journal.MaxEvent()-attributesRoom))
}

const (
	// maxAuditEvent bounds the body of an audit event, in bytes: brokers take 1 MB in
	// all by default, and the trail holds larger entries.
	maxAuditEvent = 512 << 10
	// attributesRoom is left for an event's attributes and labels, where an
	// external server takes small messages only.
	attributesRoom = 4 << 10
)

// withoutBodies returns a large entry in short: its place in the trail has the whole of
// it.
func withoutBodies(e audit.Entry, size int) audit.Entry {
	e.Before, e.After = nil, nil
	e.Detail = fmt.Appendf(nil, `{"omitted":"before, after and detail: the entry has %d bytes; the trail holds it whole"}`, size)
	return e
}

// eventOf makes an entry of the trail an event. Its body is the trail's own record, so
// a receiver can find its hash in the trail; one longer than limit is given in short.
func eventOf(trail string, index int64, e audit.Entry, limit int) (relay.Event, error) {
	raw, err := json.Marshal(e)
	if err != nil {
		return relay.Event{}, fmt.Errorf("encode audit entry %d: %w", index, err)
	}
	body, err := jsondiff.Canonical(raw)
	if err != nil {
		return relay.Event{}, fmt.Errorf("encode audit entry %d: %w", index, err)
	}
	if len(body) > limit {
		return eventOf(trail, index, withoutBodies(e, len(body)), math.MaxInt)
	}
	return relay.Event{
		ID: fmt.Sprintf("%s@%d", trail, index), Type: e.Type, Subject: e.Subject,
		Source: relay.SourceOf(e.Project, e.Environment), Project: e.Project, Environment: e.Environment,
		Time: e.Time, Received: time.Now(), ContentType: "application/json", Body: body,
	}, nil
}
