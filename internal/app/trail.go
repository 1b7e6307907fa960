package app

import (
	"context"
	"errors"
	"net/http"
	"path/filepath"
	"time"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/config/secret"
	"github.com/auditrelay/auditrelay/internal/control/admin"
	"github.com/auditrelay/auditrelay/internal/control/web"
	"github.com/auditrelay/auditrelay/internal/ingest/connlimit"
	"github.com/auditrelay/auditrelay/internal/store"
	"github.com/auditrelay/auditrelay/internal/store/lease"
	"github.com/auditrelay/auditrelay/internal/trail/audit"
	"github.com/auditrelay/auditrelay/internal/trail/tiles"
	"github.com/auditrelay/auditrelay/internal/trail/witness"
)

// closeTrail takes an unusable trail for a warning: it was reported while the relay
// ran, and stopping is no failure of the relay.
func (c *control) closeTrail(ctx context.Context) error {
	err := c.trail.Close(ctx)
	c.finishTiles(ctx)
	if errors.Is(err, audit.ErrUnavailable) {
		c.log.Warn("the audit trail was not signed to its end; the next start signs it", "error", err)
		return nil
	}
	return err
}

// startTrail never fails because of the trail. The trail names its own damage, and an
// unusable one is tried again while events are taken and delivered.
func (c *control) startTrail(ctx context.Context) (err error) {
	o := TrailOptions(c.cfg())
	o.Heartbeat = *c.cfg().Audit.Heartbeat
	o.Logger, o.Registerer = c.log, c.reg
	o.Certain = func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, lease.DefaultTiming.Dead) // then others have declared it dead
		defer cancel()
		return c.turn.Await(ctx)
	}
	if c.trail, err = audit.Open(ctx, c.store, o); err != nil {
		return err
	}
	c.stack.push("audit trail", c.closeTrail)
	c.watchTrail(ctx)
	c.admin.AddCheck(admin.Check{Name: "audit trail", Probe: func(context.Context) (string, error) { return c.trail.Remark(), nil }})
	c.admin.AddStatus("trail", func(context.Context) (any, error) {
		return map[string]any{
			"entries": c.trail.Size(), "public_key": c.trail.PublicKey(), "generations": c.trail.Generations(), "state": c.trail.Remark(),
			"heartbeat_gaps": c.trail.Gaps(statusGaps),
		}, nil
	})
	return nil
}

// watchTrail has the trail's logs read back now and then, as all others are: what is lost while
// the relay runs is named before the next start.
func (c *control) watchTrail(ctx context.Context) {
	for _, name := range []string{audit.EntriesLog, audit.CheckpointsLog} {
		log, err := c.store.Log(ctx, name, store.Options{})
		if err == nil {
			err = c.quarantine.Watch(ctx, name, log)
		}
		if err != nil {
			c.log.Warn("a log of the audit trail is not read back while the relay runs", "log", name, "error", err)
		}
	}
}

// statusGaps bounds the gaps between heartbeats in /status.
const statusGaps = 10

// ForwardedFile notes the newest entry of the trail that was given to the sinks. It stands
// apart from the store, so that a store that was put back to an earlier state contradicts it.
const ForwardedFile = "trail.forwarded"

// TrailOptions say where the key and the files of a configuration's trail are.
func TrailOptions(cfg *config.Config) audit.Options {
	a := cfg.Audit
	return audit.Options{
		KeySource: audit.KeySource{
			Origin: a.Origin, KeyFile: a.KeyFile, KeyEnv: a.KeyEnv, SignCommand: a.SignCommand, SignEnv: a.SignEnv, PublicKey: a.PublicKey, PinFile: a.CheckpointFile,
		},
		Evidence: audit.Evidence{
			ForwardedFile: filepath.Join(cfg.DataDir, ForwardedFile), SalvageDir: filepath.Join(cfg.DataDir, SalvageDir),
			Files: tiles.Open(filepath.Join(cfg.DataDir, tiles.Dir)),
		},
		Shared: cfg.Journal.URL != "",
	}
}

// startWitnesses has the trail cosigned by the configured witnesses.
func (c *control) startWitnesses(context.Context) error {
	if len(c.cfg().Audit.Witnesses) == 0 {
		return nil
	}
	cosigner, err := witness.NewCosigner(witness.CosignOptions{
		Witnesses: c.cfg().Audit.Witnesses, Quorum: c.cfg().Audit.Quorum, Patience: *c.cfg().Audit.Heartbeat,
		Logger: c.log, Registerer: c.reg,
	})
	if err != nil {
		return err
	}
	c.admin.AddCheck(admin.Check{Name: "witnesses", Probe: func(context.Context) (string, error) { return cosigner.Remark(), nil }})
	c.admin.AddStatus("witnesses", func(context.Context) (any, error) { return cosigner.Status(), nil })
	c.stack.push("witnesses", background(func(ctx context.Context) { cosigner.Run(ctx, c.trail) }))
	return nil
}

// startTiles keeps the trail's files for public tools, and serves them. They are derived:
// a failure of theirs stops nothing.
func (c *control) startTiles(ctx context.Context) error {
	store := c.tiles()
	c.files = tiles.NewKeeper(store, c.trail, c.trail.Generations, c.log)
	c.stack.push("trail's files", background(c.files.Keep))
	files := store.Handler()
	if c.inCluster() {
		files = c.files.Handler() // another relay may have kept the trail since this one did
	}
	c.published.Store(&web.Trail{
		Files: files, Policy: c.trailPolicy,
		Dir: filepath.Join(c.cfg().DataDir, tiles.Dir), Witnesses: witness.ForPolicy(c.cfg().Audit.Witnesses), Quorum: c.cfg().Audit.Quorum,
	})
	serve := c.cfg().Audit.Serve
	switch {
	case serve.Listen == config.ServeOff:
		return nil
	case serve.Listen != config.ServeOnAdmin:
		return c.serveTiles(ctx, serve, files)
	case serve.Public:
		c.admin.HandleOpen(tiles.Prefix, files)
		return nil
	}
	c.admin.Handle(tiles.Prefix, files)
	return nil
}

// finishTiles writes the checkpoint signed at the trail's stop. A crash before, or a
// failure, leaves it to the next start.
func (c *control) finishTiles(ctx context.Context) {
	if c.files == nil || c.trail.Size() == 0 {
		return
	}
	if err := c.files.Run(ctx); err != nil {
		c.log.Warn("the trail's last checkpoint is not in its files; the next start writes it", "error", err)
	}
}

func (c *control) tiles() *tiles.Store { return tiles.Open(filepath.Join(c.cfg().DataDir, tiles.Dir)) }

// trailToken is what readers of the trail have to show; empty if nothing.
func (c *control) trailToken() secret.Text {
	serve := c.cfg().Audit.Serve
	if certified := serve.TLS != nil && serve.TLS.ClientCAFile != ""; serve.Token.Empty() && !certified && !serve.Public {
		return c.private
	}
	return serve.Token
}

// serveTiles serves the trail on an address of its own.
func (c *control) serveTiles(ctx context.Context, serve config.AuditServe, trail http.Handler) error {
	mux := http.NewServeMux()
	mux.Handle(tiles.Prefix, admin.Guarded(c.trailToken, trail))
	bound, err := c.serve(ctx, &c.stack, serve.Listen, serve.TLS.ServerConfig, serverOf(mux, 2*time.Minute), connlimit.Options{Name: "trail", Total: adminConnections})
	c.mu.Lock()
	defer c.mu.Unlock()
	c.addresses.Trail = bound
	return err
}
