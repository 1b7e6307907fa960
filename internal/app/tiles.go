package app

import (
	"context"
	"fmt"
	"net/http"
	"path/filepath"
	"time"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/internal/control/admin"
	"github.com/auditrelay/auditrelay/internal/ingest/connlimit"
	"github.com/auditrelay/auditrelay/internal/trail/tiles"
)

// startTiles keeps the trail's files for public tools, and serves them. They are derived:
// a failure of theirs stops nothing.
func (r *process) startTiles(ctx context.Context) error {
	store := r.tiles()
	r.files = tiles.NewKeeper(store, r.trail, r.trail.Generations, r.log)
	r.stack.push("trail's files", background(r.files.Keep))
	serve := r.cfg.Audit.Serve
	switch {
	case serve.Listen == config.ServeOff:
		return nil
	case serve.Listen != config.ServeOnAdmin:
		return r.serveTiles(ctx, serve, store.Handler())
	case serve.Public:
		r.admin.HandleOpen(tiles.Prefix, store.Handler())
		return nil
	}
	r.admin.Handle(tiles.Prefix, store.Handler())
	return nil
}

// finishTiles writes the checkpoint signed at the trail's stop. A crash before, or a
// failure, leaves it to the next start.
func (r *process) finishTiles(ctx context.Context) {
	if r.files == nil || r.trail.Size() == 0 {
		return
	}
	if err := r.files.Run(ctx); err != nil {
		r.log.Warn("the trail's last checkpoint is not in its files; the next start writes it", "error", err)
	}
}

func (r *process) tiles() *tiles.Store { return tiles.Open(filepath.Join(r.cfg.DataDir, tiles.Dir)) }

// serveTiles serves the trail on an address of its own.
func (r *process) serveTiles(ctx context.Context, serve config.AuditServe, trail http.Handler) error {
	tlsConfig, err := serve.TLS.ServerConfig()
	if err != nil {
		return fmt.Errorf("audit.serve: %w", err)
	}
	mux := http.NewServeMux()
	token := serve.Token
	if certified := serve.TLS != nil && serve.TLS.ClientCAFile != ""; token.Empty() && !certified && !serve.Public {
		token = r.private
	}
	mux.Handle(tiles.Prefix, admin.Guarded(token, trail))
	server := &http.Server{
		Handler: mux, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second,
		WriteTimeout: 2 * time.Minute, IdleTimeout: time.Minute,
	}
	r.addresses.Trail, err = r.serve(ctx, serve.Listen, tlsConfig, server, connlimit.Options{Name: "trail", Total: adminConnections})
	return err
}
