package console

import (
	"context"
	"errors"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/internal/trail/audit"
	"github.com/auditrelay/auditrelay/internal/trail/timeline"
	"github.com/auditrelay/auditrelay/relay"
)

// ForwardTrail asks to hand entries of the audit trail to a sink again.
type ForwardTrail struct {
	Sink   string          `json:"sink"`
	Filter timeline.Filter `json:"filter"`
	DryRun bool            `json:"dry_run,omitempty"`
}

// Check implements a check of the request.
func (f *ForwardTrail) Check() error { return f.Filter.Check() }

func (s *Server) forwardTrail(_ context.Context, req ForwardTrail, j *job) (work, error) {
	sink, err := s.sink(req.Sink)
	j.p.Unit = "entries"
	return func(ctx context.Context) error { return s.forward(ctx, sink, &req, j) }, err
}

// forward hands the chosen entries over as events. They have the ids of the first time: a
// destination may recognise them as repeated. It keeps no position; a crash ends it, and
// delivered events stay delivered.
func (s *Server) forward(ctx context.Context, sink config.Sink, req *ForwardTrail, j *job) error {
	entries, err := s.opts.Timeline.Find(ctx, req.Filter)
	if err != nil {
		return err
	}
	j.update(func(p *Progress) { p.Total, p.Matched = uint64(len(entries)), uint64(len(entries)) })
	if req.DryRun {
		return nil
	}
	limit := relay.BatchLimit{Events: max(1, sink.BatchEvents), Bytes: max(1, int(sink.BatchBytes))}
	source := &entrySource{counted: counted{letters: s.opts.Letters, job: j}, server: s, entries: entries, limit: limit}
	if err = s.pump(ctx, sink, source, source, j); errors.Is(err, errNoMore) {
		err = nil
	}
	p := j.snapshot()
	s.logEnd("forwarding of the audit trail by command", err, "sink", req.Sink, "entries", p.Total, "delivered", p.Delivered, "refused", p.Refused)
	return err
}

// entrySource gives entries of the trail to a pump, as events.
type entrySource struct {
	counted
	server  *Server
	entries []int64
	limit   relay.BatchLimit
	taken   int // of entries
}

// Next implements relay.Source.
func (l *entrySource) Next(ctx context.Context) (relay.Batch, error) {
	var events []relay.Event
	l.refused = 0
	for size := 0; l.taken < len(l.entries) && len(events) < l.limit.Events && size < l.limit.Bytes; l.taken++ {
		e, err := l.server.opts.Timeline.Get(ctx, l.entries[l.taken])
		if errors.Is(err, audit.ErrMissing) || errors.Is(err, audit.ErrDamaged) {
			l.job.update(func(p *Progress) { p.Damaged++ })
			continue
		}
		if err != nil {
			return relay.Batch{}, err
		}
		event, err := l.server.opts.Event(ctx, e)
		if err != nil {
			return relay.Batch{}, err
		}
		events, size = append(events, event), size+len(event.Body)
	}
	if l.given = len(events); l.given == 0 {
		return relay.Batch{}, errNoMore
	}
	return relay.Batch{Events: events, Position: relay.Position(l.taken)}, nil
}

// Ack implements relay.Source.
func (l *entrySource) Ack(_ context.Context, position relay.Position) error {
	l.acked(uint64(position))
	return nil
}
