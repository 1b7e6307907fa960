package app

import (
	"context"
	"errors"

	"github.com/auditrelay/auditrelay/internal/management"
	"github.com/auditrelay/auditrelay/internal/pause"
	"github.com/auditrelay/auditrelay/internal/workspace"
)

// startDesk lets people act on the workspace, once it has ended an earlier process's open
// actions in the trail.
func (r *process) startDesk(client *management.Client) {
	desk := workspace.New(client, r.trail, r.cfg.Environments, r.log)
	r.stack.push("desk", background(func(ctx context.Context) {
		for said := false; ; said = true {
			err := desk.EndOpen(ctx)
			if err == nil {
				r.desk.Store(desk)
				return
			}
			if !said && ctx.Err() == nil {
				r.log.Warn("nobody can act on the workspace yet; it is tried again", "error", err)
			}
			if pause.For(ctx, entryPause) != nil {
				return
			}
		}
	}))
}

func (r *process) deskForPeople() (*workspace.Desk, error) {
	switch desk := r.desk.Load(); {
	case r.cfg.Workspace == nil:
		return nil, errors.New("the configuration has no workspace section, so the workspace cannot be asked")
	case desk == nil:
		return nil, errors.New("the relay cannot act on the workspace yet: it is starting, or its audit trail cannot be used ('/status' and the log say why); try again")
	default:
		return desk, nil
	}
}
