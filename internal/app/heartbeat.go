package app

import (
	"context"
	"fmt"

	"github.com/auditrelay/auditrelay/internal/control/admin"
)

// startHeartbeat calls the dead-man's switch while pushes are taken.
func (r *process) startHeartbeat(context.Context) error {
	h := r.cfg.Heartbeat
	if h.URL.Empty() {
		return nil
	}
	tlsConfig, err := h.TLS.ClientConfig()
	if err != nil {
		return fmt.Errorf("heartbeat: %w", err)
	}
	options := admin.HeartbeatOptions{
		URL: h.URL, Every: h.Interval, TLS: tlsConfig, Logger: r.log,
		Alive: func(ctx context.Context) bool { return r.admin.Readiness(ctx).Ready },
	}
	r.stack.push("heartbeat", background(func(ctx context.Context) { admin.Heartbeat(ctx, options) }))
	return nil
}
