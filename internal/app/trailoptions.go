package app

import (
	"path/filepath"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/internal/trail/audit"
	"github.com/auditrelay/auditrelay/internal/trail/tiles"
)

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
