package console

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/auditrelay/auditrelay/config/secret"
	"github.com/auditrelay/auditrelay/internal/trail/audit"
	"github.com/auditrelay/auditrelay/internal/trail/eventproof"
	"github.com/auditrelay/auditrelay/internal/trail/proof"
	"github.com/auditrelay/auditrelay/internal/trail/tiles"
	"github.com/auditrelay/auditrelay/internal/trail/timeline"
	"github.com/auditrelay/auditrelay/internal/workspace"
	"github.com/auditrelay/auditrelay/internal/workspace/management"
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
	a.Person = personOf(ctx)
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

// ArchiveTrail asks to move the entry bundles made before a time to a folder on the relay's
// machine.
type ArchiveTrail struct {
	Before time.Time `json:"before"`
	Dir    string    `json:"dir"`
	DryRun bool      `json:"dry_run,omitempty"`
}

func (s *Server) archiveTrail(ctx context.Context, req ArchiveTrail, j *job) error {
	// A dry run may still be ending when the command itself comes.
	if !req.DryRun {
		if !s.archiving.TryLock() {
			return refuse(http.StatusConflict, "another command archives the trail just now")
		}
		defer s.archiving.Unlock()
	}
	j.begin("entries")
	if _, _, err := s.opts.Trail.Last(ctx, noProject, "", archiveSubject); err != nil { // it waits until the trail was read
		return err
	}
	a := &tiles.Archiver{
		Store: s.opts.Files, Generations: s.opts.Trail.Generations(), Dir: req.Dir, Before: req.Before, Enter: s.enterArchive,
		Progress: func(done, total int64) { j.update(func(p *Progress) { p.Done, p.Total = uint64(done), uint64(total) }) },
	}
	move := a.Run
	if req.DryRun {
		move = a.Plan
	}
	list, err := move(ctx)
	j.update(func(p *Progress) { p.Archived = list })
	if !req.DryRun {
		s.logEnd("archiving of the audit trail by command", err, "dir", req.Dir, "before", req.Before)
	}
	return err
}

// archiveSubject is the subject of the entries about archives.
const archiveSubject = "trail_archives"

// enterArchive adds an entry, unless the newest one says the same already.
func (s *Server) enterArchive(ctx context.Context, moved proof.Archived) error {
	last, found, err := s.opts.Trail.Last(ctx, noProject, "", archiveSubject)
	if err != nil || found && moved.InDetail(last.Detail) {
		return err
	}
	return s.record(ctx, Loss{Type: proof.TypeArchived, Subject: archiveSubject, Detail: moved})
}

func (s *Server) proveEvent(ctx context.Context, q eventproof.Query) (*eventproof.Bundle, error) {
	return eventproof.Prove(ctx, s.opts.Journal.Logs(), s.opts.Trail, q)
}

// ListSpan asks for the list of a span.
type ListSpan struct {
	// Entry is the index of the span's entry: see [eventproof.List].
	Entry int64 `json:"entry"`
}

func (s *Server) listSpan(ctx context.Context, req ListSpan, out *stream) error {
	return eventproof.List(ctx, s.opts.Journal.Logs(), s.opts.Trail, req.Entry, out.put)
}

// RotateKey asks to replace the signing key of the audit trail.
type RotateKey struct {
	// Public, where set, is the public key of a successor that is kept elsewhere, in the note
	// form: the trail only names it.
	Public string `json:"public,omitempty"`
}

// RotatedKey is the answer: the trail's newest public key, or the named one.
type RotatedKey struct {
	PublicKey string `json:"public_key"`
}

// rotatePatience bounds a rotation. A large trail takes some time to be read back.
const rotatePatience = 10 * time.Minute

func (s *Server) rotateKey(ctx context.Context, req RotateKey) (RotatedKey, error) {
	// A client that goes away does not leave a rotation half done.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), rotatePatience)
	defer cancel()
	public, err := req.Public, error(nil)
	if public == "" && s.opts.Trail.Shared() {
		err = errors.New("rotate key: other relays sign this trail with the same key: stop them all, and rotate it then")
	} else if public != "" {
		err = s.opts.Trail.NameNextKey(ctx, public, personOf(ctx))
	} else {
		public, err = s.opts.Trail.Rotate(ctx, personOf(ctx))
	}
	s.logEnd("rotation of the audit trail's key by command", err, "public_key", public, "user", personOf(ctx).User)
	return RotatedKey{PublicKey: public}, err
}

// workspaceRequest is a [workspace.Request] on the socket. Only the relay's own user can
// open it, so the secret goes over it as it is.
type workspaceRequest struct {
	workspace.Request
	Secret string `json:"secret,omitempty"`
}

// ReadWorkspace performs a reading operation.
func (c *Client) ReadWorkspace(ctx context.Context, r workspace.Request) (out workspace.Outcome, err error) {
	return out, c.call(ctx, "/v1/workspace/read", onWire(r), &out)
}

// PlanWorkspace previews a mutation.
func (c *Client) PlanWorkspace(ctx context.Context, r workspace.Request) (p workspace.Plan, err error) {
	return p, c.call(ctx, "/v1/workspace/plan", onWire(r), &p)
}

// ActOnWorkspace performs a mutation.
func (c *Client) ActOnWorkspace(ctx context.Context, r workspace.Request) (out workspace.Outcome, err error) {
	return out, c.call(ctx, "/v1/workspace/do", onWire(r), &out)
}

func onWire(r workspace.Request) workspaceRequest {
	return workspaceRequest{Request: r, Secret: r.Secret.Reveal()}
}

// onDesk serves one method of the desk.
func onDesk[T any](s *Server, method func(*workspace.Desk, context.Context, workspace.Request) (T, error)) http.HandlerFunc {
	return answers(func(ctx context.Context, req workspaceRequest) (v T, err error) {
		desk, err := s.opts.Desk()
		if err != nil {
			return v, refuse(http.StatusServiceUnavailable, "%v", err)
		}
		req.Request.Secret, req.Person = secret.New(req.Secret), personOf(ctx)
		v, err = method(desk, ctx, req.Request)
		var api *management.APIError
		if errors.As(err, &api) && api.URL != "" {
			err = fmt.Errorf("%w; see %s", err, api.URL)
		}
		return v, err
	})
}
