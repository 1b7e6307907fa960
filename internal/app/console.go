package app

import (
	"cmp"
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/internal/control/access"
	"github.com/auditrelay/auditrelay/internal/control/console"
	"github.com/auditrelay/auditrelay/internal/control/web"
	"github.com/auditrelay/auditrelay/internal/health"
	"github.com/auditrelay/auditrelay/internal/ingest/connlimit"
	"github.com/auditrelay/auditrelay/internal/trail/audit"
	"github.com/auditrelay/auditrelay/internal/trail/proof"
	"github.com/auditrelay/auditrelay/internal/trail/timeline"
	"github.com/auditrelay/auditrelay/internal/trail/witness"
	"github.com/auditrelay/auditrelay/internal/workspace"
	"github.com/auditrelay/auditrelay/relay"
	"github.com/auditrelay/auditrelay/sinks"
)

// startElsewhere tells the command line that another relay of the cluster answers, until this one
// has control.
func (r *process) startElsewhere(ctx context.Context) error {
	server, err := console.Listen(ctx, r.cfg().DataDir, console.Options{
		Elsewhere: true, Taking: func() bool { return slices.Contains(r.work.list(), controlJob) },
		Status: r.admin.Status, Reload: r.Reload, Visitors: r.visitors, WebURL: r.webURL, Logger: r.log,
	}, r.fail)
	if err != nil {
		return err
	}
	r.console.Store(server)
	r.stack.push("console without control", server.Close)
	return nil
}

// startConsole answers the command line. It is stopped before the sinks and the journal
// are.
func (c *control) startConsole(ctx context.Context) error {
	c.silences = health.NewSilences(c.trail, c.environments()) // the health's writer reads them from the trail
	options := console.Options{
		Journal: c.journal, Quarantine: c.quarantine, Letters: c.letters, Sinks: func() []config.Sink { return c.cfg().Sinks }, Delivery: c.deliveries.Delivery, History: c.deliveries.History, Open: c.openForReplay, Route: sinks.Route, Record: c.recordLoss,
		Credentials: c.credentials, Streaming: c.streaming, Desk: c.deskForPeople, Silences: c.silences,
		Timeline: c.timeline, Trail: c.trail, Files: c.tiles(), Event: c.auditEvent,
		Status: c.admin.Status, Reload: c.Reload, Visitors: c.visitors, WebURL: c.webURL, Redact: c.cfg().Console.Redact, Logger: c.log,
	}
	server := c.console.Load()
	var err error
	if server == nil {
		server, err = console.Listen(ctx, c.cfg().DataDir, options, c.fail)
	} else { // it answers without control, and whoever asks just now gets an answer
		server, err = server.Replace(options)
	}
	if err != nil {
		return err
	}
	c.console.Store(server)
	c.stack.push("console", func(ctx context.Context) error {
		ctx, cancel := portion(ctx, 3) // a replay to a sink that hangs leaves the trail the time to be signed
		defer cancel()
		return server.Close(ctx)
	})
	c.admin.AddStatus("sinks", func(ctx context.Context) (any, error) { return server.Sinks(ctx) })
	return nil
}

// startTimeline keeps an index of the trail, to answer questions about it.
func (c *control) startTimeline(context.Context) error {
	c.timeline = timeline.Open(timeline.Options{
		Path: filepath.Join(c.cfg().DataDir, timeline.FileName), Trail: c.trail, Logger: c.log,
		Looked: func(s timeline.Where) (time.Time, string) { return c.newest.Of(s.Project, s.Environment, s.Setting) },
	})
	c.stack.push("trail index", background(c.timeline.Keep))
	c.admin.AddStatus("changes", c.changes)
	return nil
}

// recordLoss makes an entry of the trail, and so an event at every sink.
func (c *control) recordLoss(ctx context.Context, loss console.Loss) error {
	e, err := loss.Entry()
	if err == nil {
		_, err = c.trail.Append(ctx, e)
	}
	return err
}

// openForReplay returns a further instance of a sink. If the destination has one
// writer, as a file does, the live sink serves both, one delivery at a time: two
// writers would cut off each other's lines as torn ones.
func (c *control) openForReplay(cfg config.Sink) (relay.Sink, error) {
	if cfg.Exclusive() != nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		live := c.live[cfg.Name]
		if len(live) == 0 && !c.inCluster() {
			return nil, fmt.Errorf("the sink %s has one writer, which a reload is changing at present; try again", cfg.Name)
		}
		if len(live) == 0 {
			return nil, fmt.Errorf("the sink %s has one writer, and another relay of the cluster is that at present", cfg.Name)
		}
		return lent{live[0]}, nil
	}
	return sinks.Open(cfg, c.sinkDeps())
}

func (r *process) sinkDeps() sinks.Deps {
	return sinks.Deps{Logger: r.log, Registerer: r.reg, Kinds: r.kinds}
}

// lent is a sink; its owner closes it.
type lent struct{ relay.Sink }

func (lent) Close() error { return nil }

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
