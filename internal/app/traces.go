package app

import (
	"context"

	"github.com/auditrelay/auditrelay/internal/control/traces"
)

// startTraces makes the traces of pushes, if they are configured.
func (r *process) startTraces(ctx context.Context) error {
	t := r.cfg().Traces
	if t.Endpoint == "" {
		return nil
	}
	var err error
	r.tracer, err = traces.New(ctx, traces.Options{
		Endpoint: t.Endpoint, Headers: t.Headers, TLS: t.TLS, Ratio: t.Ratio, Version: r.version, Logger: r.log,
	})
	if err != nil {
		return err
	}
	r.stack.push("traces", func(ctx context.Context) error {
		if err := r.tracer.Close(ctx); err != nil {
			r.log.Warn("the last traces were dropped", "error", err)
		}
		return nil // losing traces is harmless
	})
	return nil
}
