package app

import (
	"cmp"
	"context"
	"strings"
	"time"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/internal/control/access"
	"github.com/auditrelay/auditrelay/internal/control/console"
	"github.com/auditrelay/auditrelay/internal/control/web"
	"github.com/auditrelay/auditrelay/internal/ingest/connlimit"
	"github.com/auditrelay/auditrelay/internal/trail/audit"
	"github.com/auditrelay/auditrelay/internal/trail/proof"
	"github.com/auditrelay/auditrelay/internal/trail/witness"
	"github.com/auditrelay/auditrelay/internal/workspace"
)

// webConnections bounds the browsers' connections.
const webConnections = 64

// startWeb serves the console in the browser, if it is configured. It answers as soon as this relay
// knows whether it has control.
func (r *process) startWeb(ctx context.Context) (err error) {
	listen := r.cfg().Console.Listen
	if listen == "" {
		return nil
	}
	cfg := r.cfg().Console
	if r.visitors, err = access.New(ctx, cfg, r.store.Table(), r.log); err != nil {
		return err
	}
	r.stack.push("sessions of the console", background(r.visitors.Follow))
	pages := web.New(web.Options{Ask: r.askAs, Trail: r.publishedTrail, Access: r.visitors, Policies: func() config.Policies { return r.cfg().Policies }, Logger: r.log})
	address, err := r.serve(ctx, &r.stack, listen, cfg.ServerConfig, serverOf(pages, 30*time.Second), connlimit.Options{Name: "console", Total: webConnections})
	r.stack.push("streams of the console", func(context.Context) error { pages.EndStreams(); return nil })
	scheme := "http://"
	if cfg.TLS != nil {
		scheme = "https://"
	}
	r.webURL = cmp.Or(strings.TrimSuffix(cfg.URL, "/"), scheme+address)
	return err
}

// askAs lets a person ask this relay.
func (r *process) askAs(by workspace.Person) (*console.Client, error) {
	server, err := ifStarted(&r.console, "the relay is still starting")
	if err != nil {
		return nil, err
	}
	return server.Client(by), nil
}

// publishedTrail is what browsers prove the trail with.
func (r *process) publishedTrail() (*web.Trail, error) {
	return ifStarted(&r.published, "this relay does not write the trail at present, so it has no files of it")
}

// trailPolicy names the trail's newest key, and the configured witnesses.
func (c *control) trailPolicy() (string, error) {
	key := c.trail.PublicKey()
	if key == "" {
		return "", audit.ErrUnavailable
	}
	return proof.PolicyText([]proof.Log{{Key: key}}, witness.ForPolicy(c.cfg().Audit.Witnesses), c.cfg().Audit.Quorum), nil
}
