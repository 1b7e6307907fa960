package app

import (
	"context"
	"fmt"

	"github.com/auditrelay/auditrelay/internal/control/admin"
)

// startHeartbeat calls the dead-man's switch while pushes are taken.
func (c *control) startHeartbeat(context.Context) error {
	h := c.cfg().Heartbeat
	if h.URL.Empty() {
		return nil
	}
	tlsConfig, err := h.TLS.ClientConfig()
	if err != nil {
		return fmt.Errorf("heartbeat: %w", err)
	}
	options := admin.HeartbeatOptions{
		URL: h.URL, Every: h.Interval, TLS: tlsConfig, Logger: c.log,
		Alive: func(ctx context.Context) bool { return c.admin.Readiness(ctx).Ready },
	}
	c.acting.push("heartbeat", background(func(ctx context.Context) { admin.Heartbeat(ctx, options) }))
	return nil
}
