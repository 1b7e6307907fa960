package console

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/auditrelay/auditrelay/internal/journal"
	"github.com/auditrelay/auditrelay/internal/journal/deadletters"
	"github.com/auditrelay/auditrelay/relay"
)

func (s *Server) replaySpan(ctx context.Context, req ReplaySpan, j *job) (work, error) {
	open, err := s.openSpan(ctx, &req, j)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) error {
		if req.DryRun {
			return open.count(ctx)
		}
		s.opts.Logger.Info("replay by command begins", "sink", req.Sink, "since", req.Since, "until", req.Until, "match", req.Match)
		sink, err := s.sink(req.Sink)
		if err != nil {
			return err
		}
		if err = s.pump(ctx, sink, open, open, j); errors.Is(err, journal.ErrSpanEnd) {
			err = nil
		}
		p := j.snapshot()
		s.logEnd("replay by command", err, "sink", req.Sink, "events", p.Matched, "delivered", p.Delivered, "refused", p.Refused)
		return err
	}, nil
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

// spanSource gives a span's events to a pump.
type spanSource struct {
	counted
	span *journal.Span
}

func (s *Server) openSpan(ctx context.Context, req *ReplaySpan, j *job) (*spanSource, error) {
	match, err := ParseMatch(req.Match)
	if err != nil {
		return nil, refuse(http.StatusBadRequest, "%v", err)
	}
	sink, err := s.sink(req.Sink)
	if err != nil {
		return nil, err
	}
	if !req.Until.IsZero() && !req.Since.Before(req.Until) {
		return nil, refuse(http.StatusBadRequest, "the span is empty: it begins at %s and ends at %s", at(req.Since), at(req.Until))
	}
	limit := relay.BatchLimit{Events: max(1, sink.BatchEvents), Bytes: max(1, int(sink.BatchBytes))}
	span, err := s.opts.Journal.Span(ctx, req.Since, req.Until, limit, match.Keeps)
	if err != nil {
		return nil, err
	}
	j.p.Unit = "records"
	if span.Cut {
		j.p.Notes = append(j.p.Notes, cutNote(req.Since, span.Oldest))
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
