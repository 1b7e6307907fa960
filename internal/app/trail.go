package app

import (
	"context"
	"errors"

	"github.com/auditrelay/auditrelay/internal/control/admin"
	"github.com/auditrelay/auditrelay/internal/store"
	"github.com/auditrelay/auditrelay/internal/trail/audit"
)

// closeTrail takes an unusable trail for a warning: it was reported while the relay
// ran, and stopping is no failure of the relay.
func (c *control) closeTrail(ctx context.Context) error {
	err := c.trail.Close(ctx)
	c.finishTiles(ctx)
	if errors.Is(err, audit.ErrUnavailable) {
		c.log.Warn("the audit trail was not signed to its end; the next start signs it", "error", err)
		return nil
	}
	return err
}

// startTrail never fails because of the trail. The trail names its own damage, and an
// unusable one is tried again while events are taken and delivered.
func (c *control) startTrail(ctx context.Context) (err error) {
	o := TrailOptions(c.cfg())
	o.Heartbeat = *c.cfg().Audit.Heartbeat
	o.Logger, o.Registerer = c.log, c.reg
	if c.trail, err = audit.Open(ctx, c.store, o); err != nil {
		return err
	}
	c.stack.push("audit trail", c.closeTrail)
	c.watchTrail(ctx)
	c.admin.AddCheck(admin.Check{Name: "audit trail", Probe: func(context.Context) (string, error) { return c.trail.Remark(), nil }})
	c.admin.AddStatus("trail", func(context.Context) (any, error) {
		return map[string]any{
			"entries": c.trail.Size(), "public_key": c.trail.PublicKey(), "generations": c.trail.Generations(), "state": c.trail.Remark(),
			"heartbeat_gaps": c.trail.Gaps(statusGaps),
		}, nil
	})
	return nil
}

// watchTrail has the trail's logs read back now and then, as all others are: what is lost while
// the relay runs is named before the next start.
func (c *control) watchTrail(ctx context.Context) {
	for _, name := range []string{audit.EntriesLog, audit.CheckpointsLog} {
		log, err := c.store.Log(ctx, name, store.Options{})
		if err == nil {
			err = c.quarantine.Watch(ctx, name, log)
		}
		if err != nil {
			c.log.Warn("a log of the audit trail is not read back while the relay runs", "log", name, "error", err)
		}
	}
}

// statusGaps bounds the gaps between heartbeats in /status.
const statusGaps = 10
