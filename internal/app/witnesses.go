package app

import (
	"context"

	"github.com/auditrelay/auditrelay/internal/control/admin"
	"github.com/auditrelay/auditrelay/internal/trail/audit"
	"github.com/auditrelay/auditrelay/internal/trail/witness"
)

// addWitnesses has a trail cosigned by the configured witnesses. opened is to be called
// with the open trail.
func (c *control) addWitnesses(o *audit.Options) (opened func(*audit.Trail), err error) {
	if len(c.cfg.Audit.Witnesses) == 0 {
		return func(*audit.Trail) {}, nil
	}
	cosigner, err := witness.NewCosigner(witness.CosignOptions{
		Witnesses: c.cfg.Audit.Witnesses, Quorum: c.cfg.Audit.Quorum, Patience: *c.cfg.Audit.Heartbeat,
		Logger: c.log, Registerer: c.reg,
	})
	if err != nil {
		return nil, err
	}
	o.Cosign = cosigner.Cosign
	c.admin.AddCheck(admin.Check{Name: "witnesses", Probe: func(context.Context) (string, error) { return cosigner.Remark(), nil }})
	c.admin.AddStatus("witnesses", func(context.Context) (any, error) { return cosigner.Status(), nil })
	return cosigner.Record, nil
}
