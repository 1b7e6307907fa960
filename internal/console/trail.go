package console

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/auditrelay/auditrelay/internal/audit"
	"github.com/auditrelay/auditrelay/internal/timeline"
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

func (s *Server) listTrail(w http.ResponseWriter, r *http.Request) {
	var req ListTrail
	if err := readTrailRequest(w, r, &req, &req.Filter); err != nil {
		s.fail(w, err)
		return
	}
	out := newStream(w)
	next, err := s.listUntilNow(r.Context(), req, out)
	if err == nil && req.Follow {
		if err = out.send(frame{Following: &next}); err == nil {
			err = s.opts.Timeline.Follow(r.Context(), next, req.Filter, func(row timeline.Row) error { return out.send(frame{Row: &row}) })
		}
	}
	out.end(r.Context(), nil, err)
}

// listUntilNow sends the entries there are, and returns where to follow from. By
// following, a client gets all of its entries.
func (s *Server) listUntilNow(ctx context.Context, req ListTrail, out *stream) (next int64, err error) {
	if req.Follow && req.From != nil {
		return *req.From, s.opts.Timeline.Ready(ctx)
	}
	return s.opts.Timeline.List(ctx, req.Filter, func(row timeline.Row) error { return out.put(frame{Row: &row}) })
}

func (s *Server) readTrail(w http.ResponseWriter, r *http.Request) {
	var req ListTrail
	if err := readTrailRequest(w, r, &req, &req.Filter); err != nil {
		s.fail(w, err)
		return
	}
	out := newStream(w)
	err := s.opts.Timeline.Entries(r.Context(), req.Filter, func(e timeline.Entry) error { return out.put(frame{Entry: &e}) })
	out.end(r.Context(), nil, err)
}

func readTrailRequest(w http.ResponseWriter, r *http.Request, req any, f *timeline.Filter) error {
	if err := readJSON(w, r, req); err != nil {
		return err
	}
	if err := f.Check(); err != nil {
		return refuse(http.StatusBadRequest, "%v", err)
	}
	return nil
}

func (s *Server) listSettings(w http.ResponseWriter, r *http.Request) {
	var req ListTrail
	err := readTrailRequest(w, r, &req, &req.Filter)
	var list []timeline.Setting
	if err == nil {
		list, err = s.opts.Timeline.Settings(r.Context(), req.Filter)
	}
	if err != nil {
		s.fail(w, err)
		return
	}
	writeJSON(w, http.StatusOK, list)
}

func (s *Server) settingAt(w http.ResponseWriter, r *http.Request) {
	var req SettingAt
	err := readJSON(w, r, &req)
	var state timeline.State
	if err == nil {
		state, err = s.opts.Timeline.At(r.Context(), req.Where, req.At)
	}
	if errors.Is(err, timeline.ErrSetting) || errors.Is(err, timeline.ErrSeveral) {
		err = refuse(http.StatusNotFound, "%v", err)
	}
	if err != nil {
		s.fail(w, err)
		return
	}
	writeJSON(w, http.StatusOK, state)
}

func (s *Server) annotate(w http.ResponseWriter, r *http.Request) {
	var req timeline.Annotation
	err := readJSON(w, r, &req)
	var index int64
	if err == nil {
		index, err = s.enterAnnotation(r.Context(), req)
	}
	if err != nil {
		s.fail(w, err)
		return
	}
	s.opts.Logger.Info("an entry of the audit trail was annotated", "entry", req.Index, "annotation", index, "reviewer", req.Reviewer, "person", personOf(r.Context()).String())
	writeJSON(w, http.StatusOK, Annotated{index})
}

// enterAnnotation makes an entry of its own. A crash before its append leaves nothing,
// after it the annotation; given again, it stands there twice, and means the same as
// once.
func (s *Server) enterAnnotation(ctx context.Context, a timeline.Annotation) (int64, error) {
	by := personOf(ctx)
	a.User, a.Host, a.UID, a.Claimed = by.User, by.Host, by.UID, by.Claimed
	if err := a.Check(); err != nil {
		return 0, refuse(http.StatusBadRequest, "%v", err)
	}
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
	return s.opts.Append(ctx, entry)
}
