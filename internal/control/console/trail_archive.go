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

func (s *Server) archiveTrail(_ context.Context, req ArchiveTrail, j *job) (work, error) {
	// A dry run may still be ending when the command itself comes.
	if !req.DryRun && !s.archiving.TryLock() {
		return nil, refuse(http.StatusConflict, "another command archives the trail just now")
	}
	j.p.Unit = "entries"
	return func(ctx context.Context) error {
		list, err := s.opts.ArchiveTrail(ctx, req, personOf(ctx), func(done, total int64) {
			j.update(func(p *Progress) { p.Done, p.Total = uint64(done), uint64(total) })
		})
		j.update(func(p *Progress) { p.Archived = list })
		if !req.DryRun {
			s.archiving.Unlock()
			s.logEnd("archiving of the audit trail by command", err, "dir", req.Dir, "before", req.Before)
		}
		return err
	}, nil
}
