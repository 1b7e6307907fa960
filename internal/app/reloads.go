package app

import (
	"context"
	"log/slog"
	"os"
	"sync/atomic"
	"time"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/internal/control/console"
	"github.com/auditrelay/auditrelay/internal/ingest/credentials"
	"github.com/auditrelay/auditrelay/internal/jsontext"
)

// Reloads change the configuration of a running relay.
type Reloads struct {
	// Load reads and validates a configuration file as it is now; "" is the relay's own.
	Load func(file string) (Loaded, error)
	// Source is that of the configuration that the relay starts with. Without its Again, no files are
	// followed.
	Source config.Source
	// Asked takes a value when somebody asks for a reload by a signal.
	Asked <-chan os.Signal
	// Begun, if set, is told that a reload begins, and what it returns that it has ended, with the
	// reason if it was refused.
	Begun func() (ended func(refused string))
	// Patience is how long a reload waits for the changed sinks to change over, to tell which have.
	// Default 10s.
	Patience time.Duration
	// Every is the time between two looks at the files that the configuration names. Default 2s.
	Every time.Duration
	// Level, if set, is the level of the Logger, which a reload may change.
	Level *slog.LevelVar
}

// Loaded is a configuration file as it was read.
type Loaded struct {
	Config *config.Config
	config.Source
}

// applied is the configuration that a relay runs with.
type applied struct {
	*config.Config
	environments map[credentials.Environment]bool
}

// cfg is the configuration that the relay runs with. What takes a restart never changes in it.
func (r *process) cfg() *config.Config { return r.applied.Load().Config }

// apply makes a configuration the one that the relay runs with. The parts are not told.
func (r *process) apply(cfg *config.Config) {
	now := &applied{Config: cfg, environments: map[credentials.Environment]bool{}}
	for _, e := range cfg.Environments {
		now.environments[credentials.EnvironmentOf(e)] = true
	}
	r.applied.Store(now)
}

// ConfigState tells of the configuration in /status.
type ConfigState struct {
	// SHA256 is the hash of its outline, as in the audit trail's entries.
	SHA256 string `json:"sha256"`
	// Loaded is when it was read and applied: at the start, or at the last reload.
	Loaded time.Time `json:"loaded"`
	// Reloads counts the reloads that were applied.
	Reloads int `json:"reloads"`
	// Error is why the last reload was not applied, at Failed; empty if it was.
	Error  string    `json:"error,omitempty"`
	Failed time.Time `json:"failed,omitzero"`
}

// reloading is the state of the reloads.
type reloading struct {
	Reloads
	turn   chan struct{} // takes a value over a reload
	done   chan struct{} // takes a value after each reload that was applied
	loaded Loaded        // what is applied; guarded by turn
	used   contents      // of its files; guarded by turn
	sure   bool          // that no file changed between reading loaded and used; guarded by turn

	now   atomic.Pointer[ConfigState] // stored by the holder of the turn
	files atomic.Pointer[string]      // why changed files are not used; empty if they are
}

func newReloading(cfg *config.Config, o Options) *reloading {
	s := &reloading{
		Reloads: o.Reloads, turn: make(chan struct{}, 1), done: make(chan struct{}, 1),
		loaded: Loaded{cfg, o.Reloads.Source}, used: contentsOf(o.Reloads.Source.Files),
	}
	s.now.Store(&ConfigState{})
	s.files.Store(new(string))
	return s
}

// take waits for the turn, as long as ctx lasts: a reload may wait for a sink that hangs, and a stop
// waits neither for that nor for what comes next.
func (s *reloading) take(ctx context.Context) error {
	select {
	case s.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (s *reloading) giveBack() { <-s.turn }

func (s *reloading) succeeded(cfg *config.Config, reloads int) {
	hash, _ := hashOf(cfg) // its outline could be encoded at the start
	s.now.Store(&ConfigState{SHA256: hash, Loaded: time.Now(), Reloads: s.now.Load().Reloads + reloads})
}

// hashOf is the hash of a configuration's outline.
func hashOf(cfg *config.Config) (string, error) {
	raw, err := outlineOf(cfg)
	return jsontext.Hash(raw), err
}

// startReloads shows the state of the reloads, and the room that is left.
func (r *process) startReloads(context.Context) error {
	r.reload.succeeded(r.cfg(), 0)
	r.reg.MustRegister(
		r.diskFree(),
		gauge("auditrelay_config_last_reload_successful", "1 if the last reload of the configuration was applied, or none was tried; 0 if it was refused.",
			func() float64 { return oneIf(r.reload.now.Load().Error == "") }),
		gauge("auditrelay_config_last_reload_success_timestamp_seconds", "When the configuration was read and applied: at the start, or at the last reload.",
			func() float64 { return float64(r.reload.now.Load().Loaded.UnixMilli()) / 1e3 }),
	)
	return nil
}

// followReloads reloads when somebody asks for it by a signal.
func (r *process) followReloads() {
	r.stack.push("reloads", background(func(ctx context.Context) {
		each(ctx, r.reload.Asked, func(os.Signal) {
			_, _ = r.Reload(ctx, console.Reload{}) // it is in the log, and in /status
		})
	}))
}
