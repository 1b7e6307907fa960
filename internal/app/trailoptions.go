package app

import (
	"path/filepath"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/internal/audit"
	"github.com/auditrelay/auditrelay/internal/tiles"
)

// TrailOptions say where a configuration's trail is, and its key.
func TrailOptions(cfg *config.Config) audit.Options {
	a, files := cfg.Audit, tiles.Open(filepath.Join(cfg.DataDir, tiles.Dir))
	return audit.Options{
		StreamPrefix: cfg.Journal.StreamPrefix, Replicas: cfg.Journal.Replicas, Shared: cfg.Journal.URL != "", Origin: a.Origin,
		KeyFile: a.KeyFile, KeyEnv: a.KeyEnv, SignCommand: a.SignCommand, SignEnv: a.SignEnv, PublicKey: a.PublicKey, PinFile: a.CheckpointFile,
		Copy: tiles.NewCopies(files).Record, Tiles: files.Tiles, Published: files.Published,
	}
}
