package app

import (
	"context"
	"fmt"
	"strings"

	"github.com/auditrelay/auditrelay/internal/control/admin"
	"github.com/auditrelay/auditrelay/internal/workspace/management"
	"github.com/auditrelay/auditrelay/internal/workspace/streaming"
)

// startFormers watches the environments that were taken out of the configuration. client
// is nil without a workspace: then only their refused pushes tell of them.
func (c *control) startFormers(client *management.Client, shown *shown) error {
	formers := streaming.NewFormers(streaming.Options{
		Environments: c.cfg().Environments, Client: client, Credentials: c.credentials, Interval: c.cfg().Streaming.Interval, Logger: c.log,
	})
	if err := shown.Register(formers); err != nil {
		return fmt.Errorf("register the metrics of former environments: %w", err)
	}
	c.runActing("former environments", formers.Run)
	shown.addStatus("not_configured", func(context.Context) (any, error) { return formers.Status(), nil })
	shown.addCheck(admin.Check{Name: "config", Probe: func(context.Context) (string, error) { return formersRemark(formers.Status()), nil }})
	return nil
}

// mostFormers bounds how many of them are named in one line.
const mostFormers = 3

// formersRemark names the environments whose events are lost because they are not
// configured. No push would be saved by sending it elsewhere, so the relay stays ready.
func formersRemark(all []streaming.FormerStatus) string {
	var losing []string
	for _, s := range all {
		if s.Losing {
			losing = append(losing, fmt.Sprintf("%s/%s: %s. Do: %s", s.Project, s.Environment, s.Reason, s.Action))
		}
	}
	if len(losing) == 0 {
		return "every environment whose event log comes here is configured"
	}
	more := ""
	if n := len(losing) - mostFormers; n > 0 {
		losing, more = losing[:mostFormers], fmt.Sprintf("; and %d more, in /status", n)
	}
	return "warning: " + strings.Join(losing, "; ") + more
}
