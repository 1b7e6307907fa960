package console

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/auditrelay/auditrelay/internal/deadletters"
	"github.com/auditrelay/auditrelay/internal/journal"
	"github.com/auditrelay/auditrelay/relay"
)

func (s *Server) replaySpan(w http.ResponseWriter, r *http.Request) {
	var req ReplaySpan
	if err := readJSON(w, r, &req); err != nil {
		s.fail(w, err)
		return
	}
	open, err := s.openSpan(r.Context(), &req)
	if err != nil {
		s.fail(w, err)
		return
	}
	s.run(w, r, open.job, func(ctx context.Context) error {
		if req.DryRun {
			return open.count(ctx)
		}
		s.opts.Logger.Info("replay by command begins", "sink", req.Sink, "since", req.Since, "until", req.Until, "match", req.Match)
		sink, err := s.sink(req.Sink)
		if err != nil {
			return err
		}
		if err = s.pump(ctx, sink, open, open, open.job); errors.Is(err, journal.ErrSpanEnd) {
			err = nil
		}
		p := open.job.snapshot()
		s.logEnd("replay by command", err, "sink", req.Sink, "events", p.Matched, "delivered", p.Delivered, "refused", p.Refused)
		return err
	})
}

// spanSource gives a span's events to a pump, and counts. It belongs to the
// pump's goroutine.
type spanSource struct {
	letters *deadletters.Store
	span    *journal.Span
	job     *job
	given   int // events of the newest batch
	refused int // of these
}

func (s *Server) openSpan(ctx context.Context, req *ReplaySpan) (*spanSource, error) {
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
	j := &job{p: Progress{Unit: "records"}}
	if span.Cut {
		j.p.Notes = append(j.p.Notes, cutNote(req.Since, span.Oldest))
	}
	return &spanSource{letters: s.opts.Letters, span: span, job: j}, nil
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

// Reject implements relay.DeadLetters.
func (l *spanSource) Reject(ctx context.Context, sink string, rejections []relay.Rejection) error {
	if err := l.letters.Reject(ctx, sink, rejections); err != nil {
		return err
	}
	l.refused += len(rejections)
	l.job.update(func(p *Progress) { p.Refused += uint64(len(rejections)) })
	return nil
}

// Ack implements relay.Source.
func (l *spanSource) Ack(ctx context.Context, position relay.Position) error {
	done, _ := l.span.Records()
	l.job.update(func(p *Progress) {
		p.Done = done
		p.Delivered += uint64(l.given - l.refused)
	})
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
