package console

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/auditrelay/auditrelay/internal/trail/audit"
	"github.com/auditrelay/auditrelay/internal/trail/timeline"
)

// ListTrail asks for entries of the audit trail.
type ListTrail struct {
	Filter timeline.Filter `json:"filter"`
	// Follow: the answer goes on with new entries, until the client leaves.
	Follow bool `json:"follow,omitempty"`
	// From, if set, is the first index for Follow: all chosen entries from there on come,
	// whatever the limit. So a client goes on after an interruption.
	From *int64 `json:"from,omitempty"`
	// Following is called by [Client.List] when all earlier entries have come, with the
	// first index of the others. It may be nil.
	Following func(next int64) `json:"-"`
}

// Check implements a check of the request.
func (l *ListTrail) Check() error { return l.Filter.Check() }

// SettingAt asks for a setting at a time.
type SettingAt struct {
	timeline.Where
	At time.Time `json:"at"`
}

// Annotated is the answer to an annotation.
type Annotated struct {
	// Entry is the annotation's place in the trail.
	Entry int64 `json:"entry"`
}

func (s *Server) listTrail(ctx context.Context, req ListTrail, out *stream) error {
	next, err := s.listUntilNow(ctx, req, out)
	if err == nil && req.Follow {
		if err = out.tell(frame{Following: &next}); err == nil {
			err = s.opts.Timeline.Follow(ctx, next, req.Filter, func(row timeline.Row) error { return out.send(row) })
		}
	}
	return err
}

// listUntilNow sends the entries there are, and returns where to follow from. By
// following, a client gets all of its entries.
func (s *Server) listUntilNow(ctx context.Context, req ListTrail, out *stream) (next int64, err error) {
	if req.Follow && req.From != nil {
		return *req.From, s.opts.Timeline.Ready(ctx)
	}
	return s.opts.Timeline.List(ctx, req.Filter, func(row timeline.Row) error { return out.put(row) })
}

func (s *Server) readTrail(ctx context.Context, req ListTrail, out *stream) error {
	return s.opts.Timeline.Entries(ctx, req.Filter, func(e timeline.Entry) error { return out.put(e) })
}

func (s *Server) annotate(ctx context.Context, req timeline.Annotation) (Annotated, error) {
	index, err := s.enterAnnotation(ctx, req)
	if err == nil {
		s.opts.Logger.Info("an entry of the audit trail was annotated", "entry", req.Index, "annotation", index, "reviewer", req.Reviewer, "person", personOf(ctx).String())
	}
	return Annotated{index}, err
}

// enterAnnotation makes an entry of its own. A crash before its append leaves nothing,
// after it the annotation; given again, it stands there twice, and means the same as
// once.
func (s *Server) enterAnnotation(ctx context.Context, a timeline.Annotation) (int64, error) {
	by := personOf(ctx)
	a.User, a.Host, a.UID, a.Claimed = by.User, by.Host, by.UID, by.Claimed
	of, err := s.opts.Timeline.Get(ctx, a.Index)
	switch {
	case errors.Is(err, audit.ErrMissing), errors.Is(err, audit.ErrDamaged):
		return 0, refuse(http.StatusNotFound, "%v", err)
	case err != nil:
		return 0, err
	case of.Type == timeline.TypeAnnotated:
		return 0, refuse(http.StatusConflict, "entry %d is an annotation itself: annotate the entry that it is about", a.Index)
	}
	entry, err := a.Entry(of)
	if err != nil {
		return 0, err
	}
	entry.Time = time.Now()
	return s.opts.Trail.Append(ctx, entry)
}
