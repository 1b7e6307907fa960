package app

import (
	"context"

	"github.com/auditrelay/auditrelay/internal/control/admin"
	"github.com/auditrelay/auditrelay/internal/trail/witness"
)

// startWitnesses has the trail cosigned by the configured witnesses.
func (c *control) startWitnesses(context.Context) error {
	if len(c.cfg().Audit.Witnesses) == 0 {
		return nil
	}
	cosigner, err := witness.NewCosigner(witness.CosignOptions{
		Witnesses: c.cfg().Audit.Witnesses, Quorum: c.cfg().Audit.Quorum, Patience: *c.cfg().Audit.Heartbeat,
		Logger: c.log, Registerer: c.reg,
	})
	if err != nil {
		return err
	}
	c.admin.AddCheck(admin.Check{Name: "witnesses", Probe: func(context.Context) (string, error) { return cosigner.Remark(), nil }})
	c.admin.AddStatus("witnesses", func(context.Context) (any, error) { return cosigner.Status(), nil })
	c.stack.push("witnesses", background(func(ctx context.Context) { cosigner.Run(ctx, c.trail) }))
	return nil
}
