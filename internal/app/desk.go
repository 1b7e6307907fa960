package app

import (
	"context"
	"errors"

	"github.com/auditrelay/auditrelay/internal/retry"
	"github.com/auditrelay/auditrelay/internal/workspace"
	"github.com/auditrelay/auditrelay/internal/workspace/management"
)

// startDesk lets people act on the workspace, once it has ended an earlier process's open
// actions in the trail.
func (c *control) startDesk(client *management.Client) {
	set := c.cfg().Environments
	if c.cfg().Streaming.DryRun {
		set = nil // the relay sets none of them
	}
	desk := workspace.New(client, c.trail, set, c.log)
	c.acting.push("questions to the desk", func(context.Context) error { c.desk.Store(nil); return nil })
	c.runActing("desk", func(ctx context.Context) {
		if c.insist(ctx, "ending the actions on the workspace that an earlier process left open", desk.EndOpen) == nil {
			c.desk.Store(desk)
		}
	})
}

// insist calls do until it succeeds or ctx ends.
func (r *process) insist(ctx context.Context, what string, do func(context.Context) error) error {
	return retry.Insist(ctx, r.log, what, func(error) bool { return false }, func() error { return do(ctx) })
}

func (c *control) deskForPeople() (*workspace.Desk, error) {
	if c.cfg().Workspace == nil {
		return nil, errors.New("the configuration has no workspace section, so the workspace cannot be asked")
	}
	return ifStarted(&c.desk, "the relay cannot act on the workspace yet: it is starting, or its audit trail cannot be used ('/status' and the log say why); try again")
}
