package console

import (
	"context"
	"net/http"
	"time"
)

// ArchiveTrail asks to move the entry bundles made before a time to a folder on the relay's
// machine.
type ArchiveTrail struct {
	Before time.Time `json:"before"`
	Dir    string    `json:"dir"`
	DryRun bool      `json:"dry_run,omitempty"`
}

func (s *Server) archiveTrail(w http.ResponseWriter, r *http.Request) {
	var req ArchiveTrail
	if err := readJSON(w, r, &req); err != nil {
		s.fail(w, err)
		return
	}
	if !req.DryRun { // a dry run may still be ending when the command itself comes
		if !s.archiving.TryLock() {
			s.fail(w, refuse(http.StatusConflict, "another command archives the trail just now"))
			return
		}
		defer s.archiving.Unlock()
	}
	j := &job{p: Progress{Unit: "entries"}}
	s.run(w, r, j, func(ctx context.Context) error {
		list, err := s.opts.ArchiveTrail(ctx, req, personOf(r.Context()), func(done, total int64) {
			j.update(func(p *Progress) { p.Done, p.Total = uint64(done), uint64(total) })
		})
		j.update(func(p *Progress) { p.Archived = list })
		if !req.DryRun {
			s.logEnd("archiving of the audit trail by command", err, "dir", req.Dir, "before", req.Before)
		}
		return err
	})
}
