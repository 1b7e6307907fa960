package console

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/internal/journal"
	"github.com/auditrelay/auditrelay/internal/journal/deadletters"
	"github.com/auditrelay/auditrelay/internal/trail/audit"
	"github.com/auditrelay/auditrelay/internal/trail/timeline"
	"github.com/auditrelay/auditrelay/relay"
)

// ReplaySpan asks to hand the kept events from Since until Until to a sink again. A
// zero Until means now.
type ReplaySpan struct {
	Sink   string    `json:"sink"`
	Since  time.Time `json:"since"`
	Until  time.Time `json:"until,omitzero"`
	Match  string    `json:"match,omitempty"` // a CEL expression, as in a sink's match
	DryRun bool      `json:"dry_run,omitempty"`
}

// replayable gives events to a pump, and takes those that are refused.
type replayable interface {
	relay.Source
	relay.DeadLetters
}

// errNoMore ends a pump that has been given everything.
var errNoMore = errors.New("no more events")

// pump hands the events of source to a further instance of a sink, until there are no more.
func (s *Server) pump(ctx context.Context, cfg config.Sink, source replayable, j *job) error {
	sink, err := s.opts.Open(cfg)
	if err != nil {
		return err
	}
	defer func() { _ = sink.Close() }() // its acknowledgements stay valid
	p := relay.Pump{
		Name: cfg.Name, Source: source, Sink: &watched{sink, j}, DeadLetters: source,
		Limit: limitOf(cfg), Timeout: cfg.Timeout,
		Logger: s.opts.Logger.With("replay", true),
	}
	if err := p.Run(ctx); !errors.Is(err, errNoMore) && !errors.Is(err, journal.ErrSpanEnd) {
		return err
	}
	return nil
}

// limitOf bounds the batches that are read for a sink.
func limitOf(cfg config.Sink) relay.BatchLimit {
	return relay.BatchLimit{Events: max(1, cfg.BatchEvents), Bytes: max(1, int(cfg.BatchBytes))}
}

// watched tells a job the error its sink is retried for.
type watched struct {
	relay.Sink
	job *job
}

func (w *watched) Deliver(ctx context.Context, events []relay.Event) error {
	err := w.Sink.Deliver(ctx, events)
	w.job.update(func(p *Progress) {
		p.Failing = ""
		if err != nil && !relay.IsPermanent(err) {
			p.Failing = err.Error()
		}
	})
	return err
}

// counted counts the delivered and the refused events of a source for a job. It belongs to the
// goroutine of the source's pump.
type counted struct {
	letters *deadletters.Store
	job     *job
	given   int // events of the newest batch
	refused int // of these
}

// Reject implements relay.DeadLetters.
func (c *counted) Reject(ctx context.Context, sink string, rejections []relay.Rejection) error {
	if err := c.letters.Reject(ctx, sink, rejections); err != nil {
		return err
	}
	c.refused += len(rejections)
	c.job.update(func(p *Progress) { p.Refused += uint64(len(rejections)) })
	return nil
}

// acked counts the newest batch as delivered, except for what was refused.
func (c *counted) acked(done uint64) {
	c.job.update(func(p *Progress) { p.Done, p.Delivered = done, p.Delivered+uint64(c.given-c.refused) })
}

// listed gives the events of a list to a pump, and loads each when its turn comes.
type listed struct {
	counted
	length int
	limit  relay.BatchLimit
	// load returns an event of the list; false for one that it has counted as left out.
	load  func(ctx context.Context, i int) (relay.Event, bool, error)
	taken int
}

// Next implements relay.Source.
func (l *listed) Next(ctx context.Context) (relay.Batch, error) {
	var events []relay.Event
	l.refused = 0
	for size := 0; l.taken < l.length && len(events) < l.limit.Events && size < l.limit.Bytes; l.taken++ {
		event, found, err := l.load(ctx, l.taken)
		if err != nil {
			return relay.Batch{}, err
		}
		if found {
			events, size = append(events, event), size+len(event.Body)
		}
	}
	if l.given = len(events); l.given == 0 {
		return relay.Batch{}, errNoMore
	}
	return relay.Batch{Events: events, Position: relay.Position(l.taken)}, nil
}

// Ack implements relay.Source.
func (l *listed) Ack(_ context.Context, position relay.Position) error {
	l.acked(uint64(position))
	return nil
}

func (s *Server) replaySpan(ctx context.Context, req ReplaySpan, j *job) error {
	sink, err := s.sink(req.Sink)
	if err != nil {
		return err
	}
	open, err := s.openSpan(ctx, sink, &req, j)
	if err != nil {
		return err
	}
	if req.DryRun {
		return open.count(ctx)
	}
	// A crash after it leaves an entry of the intent.
	if err := s.record(ctx, Loss{Type: "journal.replayed", Sink: req.Sink, Detail: req}); err != nil {
		return err
	}
	s.opts.Logger.Info("replay by command begins", "sink", req.Sink, "since", req.Since, "until", req.Until, "match", req.Match)
	err = s.pump(ctx, sink, open, j)
	p := j.snapshot()
	s.logEnd("replay by command", err, "sink", req.Sink, "events", p.Matched, "delivered", p.Delivered, "refused", p.Refused)
	return err
}

// spanSource gives a span's events to a pump.
type spanSource struct {
	counted
	span *journal.Span
}

func (s *Server) openSpan(ctx context.Context, sink config.Sink, req *ReplaySpan, j *job) (*spanSource, error) {
	// Where the expression fails for an event, it is delivered, as by a sink's match.
	match, err := s.matching(req.Match, "deliver")
	if err != nil {
		return nil, err
	}
	if !req.Until.IsZero() && !req.Since.Before(req.Until) {
		return nil, refuse(http.StatusBadRequest, "the span is empty: it begins at %s and ends at %s", at(req.Since), at(req.Until))
	}
	span, err := s.opts.Journal.Span(ctx, req.Since, req.Until, limitOf(sink), func(e *relay.Event) bool { return match == nil || match.Try(*e).Delivered })
	if err != nil {
		return nil, err
	}
	j.begin("records")
	if span.Cut {
		j.update(func(p *Progress) { p.Notes = append(p.Notes, cutNote(req.Since, span.Oldest)) })
	}
	return &spanSource{counted: counted{letters: s.opts.Letters, job: j}, span: span}, nil
}

func cutNote(since, oldest time.Time) string {
	if oldest.IsZero() {
		return fmt.Sprintf("the span begins at %s, and everything since then has been trimmed by now (see journal.replay_window)", at(since))
	}
	return fmt.Sprintf("the span begins at %s, before the oldest kept event, of %s (see journal.replay_window)", at(since), at(oldest))
}

func at(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// Next implements relay.Source.
func (l *spanSource) Next(ctx context.Context) (relay.Batch, error) {
	for {
		batch, err := l.span.Next(ctx)
		done, total := l.span.Records()
		l.job.update(func(p *Progress) {
			p.Matched, p.Missing, p.Damaged, p.Total = l.span.Events, l.span.Missing, l.span.Corrupt, total
			if len(batch.Events) == 0 {
				p.Done = done
			}
		})
		if err != nil || len(batch.Events) > 0 {
			l.given, l.refused = len(batch.Events), 0
			return batch, err
		}
	}
}

// Ack implements relay.Source.
func (l *spanSource) Ack(ctx context.Context, position relay.Position) error {
	done, _ := l.span.Records()
	l.acked(done)
	return l.span.Ack(ctx, position)
}

// count reads the span and delivers nothing.
func (l *spanSource) count(ctx context.Context) error {
	for {
		_, err := l.Next(ctx)
		if errors.Is(err, journal.ErrSpanEnd) {
			return nil
		}
		if err != nil {
			return err
		}
		done, _ := l.span.Records()
		l.job.update(func(p *Progress) { p.Done = done })
	}
}

// ForwardTrail asks to hand entries of the audit trail to a sink again.
type ForwardTrail struct {
	Sink   string          `json:"sink"`
	Filter timeline.Filter `json:"filter"`
	DryRun bool            `json:"dry_run,omitempty"`
}

// Check implements a check of the request.
func (f *ForwardTrail) Check() error { return f.Filter.Check() }

// forwardTrail hands the chosen entries over as events. They have the ids of the first time: a
// destination may recognise them as repeated. It keeps no position; a crash ends it, and
// delivered events stay delivered.
func (s *Server) forwardTrail(ctx context.Context, req ForwardTrail, j *job) error {
	sink, err := s.sink(req.Sink)
	if err != nil {
		return err
	}
	j.begin("entries")
	entries, err := s.opts.Timeline.Find(ctx, req.Filter)
	if err != nil {
		return err
	}
	j.update(func(p *Progress) { p.Total, p.Matched = uint64(len(entries)), uint64(len(entries)) })
	if req.DryRun {
		return nil
	}
	err = s.pump(ctx, sink, &listed{
		counted: counted{letters: s.opts.Letters, job: j}, length: len(entries), limit: limitOf(sink),
		load: func(ctx context.Context, i int) (relay.Event, bool, error) { return s.eventOf(ctx, entries[i], j) },
	}, j)
	p := j.snapshot()
	s.logEnd("forwarding of the audit trail by command", err, "sink", req.Sink, "entries", p.Total, "delivered", p.Delivered, "refused", p.Refused)
	return err
}

// eventOf makes an entry of the trail the same event as live delivery did.
func (s *Server) eventOf(ctx context.Context, index int64, j *job) (relay.Event, bool, error) {
	e, err := s.opts.Timeline.Get(ctx, index)
	if errors.Is(err, audit.ErrMissing) || errors.Is(err, audit.ErrDamaged) {
		j.update(func(p *Progress) { p.Damaged++ })
		return relay.Event{}, false, nil
	}
	if err != nil {
		return relay.Event{}, false, err
	}
	event, err := s.opts.Event(ctx, e)
	return event, true, err
}
