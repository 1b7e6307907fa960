package app

import (
	"context"
	"fmt"
	"net/http"
	"path/filepath"
	"reflect"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/internal/control/admin"
	"github.com/auditrelay/auditrelay/internal/health"
	"github.com/auditrelay/auditrelay/internal/ingest/credentials"
	"github.com/auditrelay/auditrelay/internal/workspace/streaming"
)

// startHealth judges the environments from before the first push until after the last.
func (c *control) startHealth(context.Context) (err error) {
	c.health, err = health.New(health.Options{
		Environments: c.cfg().Environments, Anonymous: anonymous(c.cfg().Ingest), Book: c.arrivals,
		Interval: c.cfg().Streaming.Interval, Trail: c.trail, Reviewed: c.timeline.Reviewed, Silences: c.silences, File: filepath.Join(c.cfg().DataDir, health.FileName),
		Declared: c.declaredOrNil(), Logger: c.log, Registerer: c.reg,
	})
	if err != nil {
		return err
	}
	c.lastPushes.tell(c.health.Noted)
	c.stack.push("environments' health", background(c.health.Run))
	c.admin.AddCheck(admin.Check{Name: "environments", Probe: c.environmentsRemark})
	c.admin.AddStatus("environments", func(context.Context) (any, error) { return c.health.Status(), nil })
	return nil
}

// startForeign looks for the events of streams ending elsewhere.
func (c *control) startForeign() error {
	var targets []health.Target
	for i := range c.cfg().Environments {
		e := &c.cfg().Environments[i]
		source, err := health.DestinationOf(e)
		if err != nil {
			return fmt.Errorf("environments[%d].%w", i, err)
		}
		if source != nil {
			page := c.arrivals.Of(credentials.EnvironmentOf(*e))
			targets = append(targets, health.Target{Page: page, Destination: source})
		}
	}
	c.runActing("foreign destinations", func(ctx context.Context) { health.WatchDestinations(ctx, targets, c.log) })
	return nil
}

func (r *process) environments() (names []credentials.Environment) {
	for _, e := range r.cfg().Environments {
		names = append(names, credentials.EnvironmentOf(e))
	}
	return names
}

// declaredOrNil is how the health learns what the API declares; nil without an API.
func (c *control) declaredOrNil() func() []streaming.Health {
	if c.cfg().Workspace == nil {
		return nil
	}
	return c.declared
}

// declared is the state shown by the API; nothing until the relay looks at it.
func (c *control) declared() []streaming.Health {
	if reconciler := c.reconciler.Load(); reconciler != nil {
		return reconciler.Health()
	}
	return nil
}

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
