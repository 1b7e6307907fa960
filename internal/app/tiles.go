package app

import (
	"context"
	"net/http"
	"path/filepath"
	"time"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/config/secret"
	"github.com/auditrelay/auditrelay/internal/control/admin"
	"github.com/auditrelay/auditrelay/internal/control/web"
	"github.com/auditrelay/auditrelay/internal/ingest/connlimit"
	"github.com/auditrelay/auditrelay/internal/trail/tiles"
	"github.com/auditrelay/auditrelay/internal/trail/witness"
)

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
