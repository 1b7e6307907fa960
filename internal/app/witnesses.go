package app

import (
	"context"

	"github.com/auditrelay/auditrelay/internal/control/admin"
	"github.com/auditrelay/auditrelay/internal/trail/audit"
	"github.com/auditrelay/auditrelay/internal/trail/witness"
)

// addWitnesses has a trail cosigned by the configured witnesses. opened is to be called
// with the open trail.
func (r *process) addWitnesses(o *audit.Options) (opened func(*audit.Trail), err error) {
	if len(r.cfg.Audit.Witnesses) == 0 {
		return func(*audit.Trail) {}, nil
	}
	cosigner, err := witness.NewCosigner(witness.CosignOptions{
		Witnesses: r.cfg.Audit.Witnesses, Quorum: r.cfg.Audit.Quorum, Patience: *r.cfg.Audit.Heartbeat,
		Logger: r.log, Registerer: r.reg,
	})
	if err != nil {
		return nil, err
	}
	o.Cosign = cosigner.Cosign
	r.admin.AddCheck(admin.Check{Name: "witnesses", Probe: func(context.Context) (string, error) { return cosigner.Remark(), nil }})
	r.admin.AddStatus("witnesses", func(context.Context) (any, error) { return cosigner.Status(), nil })
	return cosigner.Record, nil
}
