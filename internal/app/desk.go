package app

import (
	"context"
	"errors"
	"time"

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
		if c.untilDone(ctx, "nobody can act on the workspace yet", desk.EndOpen) == nil {
			c.desk.Store(desk)
		}
	})
}

// entryPause is the wait before the next attempt to append an entry.
const entryPause = 5 * time.Second

// untilDone tries until do succeeds or ctx ends. Its first failure is logged as what.
func (c *control) untilDone(ctx context.Context, what string, do func(context.Context) error) error {
	for said := false; ; said = true {
		err := do(ctx)
		if err == nil {
			return nil
		}
		if !said && ctx.Err() == nil {
			c.log.Warn(what+"; it is tried again", "error", err)
		}
		if err := retry.Sleep(ctx, entryPause); err != nil {
			return err
		}
	}
}

func (c *control) deskForPeople() (*workspace.Desk, error) {
	switch desk := c.desk.Load(); {
	case c.cfg().Workspace == nil:
		return nil, errors.New("the configuration has no workspace section, so the workspace cannot be asked")
	case desk == nil:
		return nil, errors.New("the relay cannot act on the workspace yet: it is starting, or its audit trail cannot be used ('/status' and the log say why); try again")
	default:
		return desk, nil
	}
}
