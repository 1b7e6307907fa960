package console

import (
	"context"
	"errors"
	"net/http"

	"github.com/auditrelay/auditrelay/internal/audit"
	"github.com/auditrelay/auditrelay/internal/timeline"
	"github.com/auditrelay/auditrelay/relay"
)

// ForwardTrail asks to hand entries of the audit trail to a sink again.
type ForwardTrail struct {
	Sink   string          `json:"sink"`
	Filter timeline.Filter `json:"filter"`
	DryRun bool            `json:"dry_run,omitempty"`
}

func (s *Server) forwardTrail(w http.ResponseWriter, r *http.Request) {
	var req ForwardTrail
	err := readTrailRequest(w, r, &req, &req.Filter)
	if err == nil {
		_, err = s.sink(req.Sink)
	}
	if err != nil {
		s.fail(w, err)
		return
	}
	j := &job{p: Progress{Unit: "entries"}}
	s.run(w, r, j, func(ctx context.Context) error { return s.forward(ctx, &req, j) })
}

// forward hands the chosen entries over as events. They have the ids of the first time: a
// destination may recognise them as repeated. It keeps no position; a crash ends it, and
// delivered events stay delivered.
func (s *Server) forward(ctx context.Context, req *ForwardTrail, j *job) error {
	sink, err := s.sink(req.Sink)
	if err != nil {
		return err
	}
	entries, err := s.opts.Timeline.Find(ctx, req.Filter)
	if err != nil {
		return err
	}
	j.update(func(p *Progress) { p.Total, p.Matched = uint64(len(entries)), uint64(len(entries)) })
	if req.DryRun {
		return nil
	}
	limit := relay.BatchLimit{Events: max(1, sink.BatchEvents), Bytes: max(1, int(sink.BatchBytes))}
	source := &entrySource{server: s, entries: entries, limit: limit, job: j}
	if err = s.pump(ctx, sink, source, source, j); errors.Is(err, errNoMore) {
		err = nil
	}
	p := j.snapshot()
	s.logEnd("forwarding of the audit trail by command", err, "sink", req.Sink, "entries", p.Total, "delivered", p.Delivered, "refused", p.Refused)
	return err
}

// entrySource gives entries of the trail to a pump, as events. It belongs to the pump's
// goroutine.
type entrySource struct {
	server  *Server
	entries []int64
	limit   relay.BatchLimit
	job     *job

	taken   int // of entries
	given   int // events of the newest batch
	refused int // of these
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

// Reject implements relay.DeadLetters.
func (l *entrySource) Reject(ctx context.Context, sink string, rejections []relay.Rejection) error {
	if err := l.server.opts.Letters.Reject(ctx, sink, rejections); err != nil {
		return err
	}
	l.refused += len(rejections)
	l.job.update(func(p *Progress) { p.Refused += uint64(len(rejections)) })
	return nil
}

// Ack implements relay.Source.
func (l *entrySource) Ack(_ context.Context, position relay.Position) error {
	l.job.update(func(p *Progress) {
		p.Done = uint64(position)
		p.Delivered += uint64(l.given - l.refused)
	})
	return nil
}
