package app

import (
	"context"

	"github.com/auditrelay/auditrelay/internal/control/console"
	"github.com/auditrelay/auditrelay/internal/trail/proof"
	"github.com/auditrelay/auditrelay/internal/trail/tiles"
	"github.com/auditrelay/auditrelay/internal/workspace"
)

// archiveSubject is the subject of the entries about archives.
const archiveSubject = "trail_archives"

// archiveTrail moves old entry bundles to a folder.
func (c *control) archiveTrail(ctx context.Context, req console.ArchiveTrail, by workspace.Person, progress func(done, total int64)) ([]proof.Archived, error) {
	if _, _, err := c.trail.Last(ctx, console.NoProject, "", archiveSubject); err != nil { // it waits until the trail was read
		return nil, err
	}
	a := &tiles.Archiver{
		Store: c.tiles(), Generations: c.trail.Generations(), Dir: req.Dir, Before: req.Before, Progress: progress,
		Enter: func(ctx context.Context, moved proof.Archived) error { return c.enterArchive(ctx, moved, by) },
	}
	if req.DryRun {
		return a.Plan(ctx)
	}
	return a.Run(ctx)
}

// enterArchive adds an entry, unless the newest one says the same already.
func (c *control) enterArchive(ctx context.Context, moved proof.Archived, by workspace.Person) error {
	last, found, err := c.trail.Last(ctx, console.NoProject, "", archiveSubject)
	if err != nil {
		return err
	}
	if found && moved.InDetail(last.Detail) {
		return nil
	}
	return c.recordLoss(ctx, console.Loss{Type: proof.TypeArchived, Subject: archiveSubject, Person: by, Detail: moved})
}
