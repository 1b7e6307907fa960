package app

import (
	"context"
	"fmt"
	"net/http"
	"reflect"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/internal/control/admin"
)

// beats are the connections of the heartbeat. They follow the files of their section by themselves,
// and are kept while the section stays the same. So a file that cannot be used holds up nothing else
// when the heartbeat is started again.
type beats struct {
	tls       *config.TLSClient
	transport http.RoundTripper
}

// startHeartbeat calls the dead-man's switch while pushes are taken.
func (c *control) startHeartbeat(context.Context) error {
	h := c.cfg().Heartbeat
	if h.URL.Empty() {
		return nil
	}
	if c.beats == nil || !reflect.DeepEqual(c.beats.tls, h.TLS) {
		transport, err := admin.HeartbeatTransport(h.TLS)
		if err != nil {
			return fmt.Errorf("heartbeat.tls: %w", err)
		}
		c.beats = &beats{h.TLS, transport}
	}
	options := admin.HeartbeatOptions{
		URL: h.URL, Every: h.Interval, Transport: c.beats.transport, Logger: c.log,
		Alive: func(ctx context.Context) bool { return c.admin.Readiness(ctx).Ready },
	}
	c.runActing("heartbeat", func(ctx context.Context) { admin.Heartbeat(ctx, options) })
	return nil
}
