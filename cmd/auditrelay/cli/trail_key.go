package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/internal/app"
	"github.com/auditrelay/auditrelay/internal/control/console"
	"github.com/auditrelay/auditrelay/internal/store"
	"github.com/auditrelay/auditrelay/internal/trail/audit"
	"github.com/auditrelay/auditrelay/internal/trail/tiles"
)

func newTrailKeygen() *cobra.Command {
	var origin, file, publicFile string
	return command("trail keygen", alone(""), func(cmd *cobra.Command, _ []string, _ alone) error {
		public, err := keygen(origin, file, publicFile)
		if err != nil {
			return err
		}
		return say(cmd.OutOrStdout(), "%s", public)
	}, text(&origin, "origin", "the `NAME` of the trail"), text(&file, "file", "the new `FILE` for the key"),
		text(&publicFile, "public", "a PEM `FILE` with an Ed25519 public key"), check(func() error {
			switch {
			case origin == "":
				return errors.New("give --origin, the name of the trail, such as example.com/auditrelay")
			case (file == "") == (publicFile == ""):
				return errors.New("give one of --file, for a new key, and --public, for the public half of a key elsewhere")
			}
			return nil
		}))
}

func keygen(origin, file, publicFile string) (public string, err error) {
	if file != "" {
		return audit.GenerateKey(file, origin)
	}
	text, err := os.ReadFile(publicFile)
	if err != nil {
		return "", fmt.Errorf("read public key: %w", err)
	}
	return audit.PublicKey(origin, text)
}

func (p Program) newTrailRotateKey() *cobra.Command {
	which := p.configured()
	which.usage = "the relay's configuration `FILE`"
	var nextPublic string
	var yes bool
	return command("trail rotate-key", which, func(cmd *cobra.Command, _ []string, cfg *config.Config) error {
		if nextPublic == "" && cfg.Audit.KeyFile == "" {
			return errors.New("the key is not in a file: make the new one yourself, and give its public key with --public")
		}
		if err := confirm(cmd, yes, "The old key cannot be used for this trail again.\nReplace it now?"); err != nil {
			return err
		}
		client := console.NewClient(cfg.DataDir)
		client.Person = thisPerson()
		done, err := client.RotateKey(cmd.Context(), console.RotateKey{Public: nextPublic})
		if errors.Is(err, console.ErrNoRelay) {
			return rotateKey(cmd, cfg, p.build().Version, nextPublic)
		}
		if err != nil {
			return err
		}
		return sayRotated(cmd, done.PublicKey, nextPublic != "")
	}, text(&nextPublic, "public", "the public `KEY` of a new key elsewhere, NAME+HASH+KEY"), onOff(&yes, "yes", "do not ask"))
}

// sayRotated says which key the trail has now, or names as its next one.
func sayRotated(cmd *cobra.Command, public string, elsewhere bool) error {
	if elsewhere {
		return say(cmd.OutOrStdout(), "the trail names %s as its next key; put it into the configuration, and start the relay again", public)
	}
	return say(cmd.OutOrStdout(), "the key is replaced; checkpoints are signed with %s", public)
}

// rotateKey does it on the trail of a stopped relay; it can be repeated.
func rotateKey(cmd *cobra.Command, cfg *config.Config, version, elsewhere string) (err error) {
	log := newLogger(cmd.ErrOrStderr(), config.Log{Level: "warn", Format: "text"})
	s, err := app.OpenStore(cmd.Context(), cfg, app.StoreOptions{Version: version, Logger: log})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	public := elsewhere
	err = withTrail(cmd.Context(), cfg, s, log, func(ctx context.Context, trail *audit.Trail) (err error) {
		if elsewhere == "" {
			public, err = trail.Rotate(ctx, thisProcess())
			return err
		}
		return trail.NameNextKey(ctx, elsewhere, thisProcess())
	})
	if err != nil {
		return err
	}
	return sayRotated(cmd, public, elsewhere != "")
}

// withTrail opens the trail of a stopped relay, and signs it after do. Then it brings the files
// for public tools up to date, as a relay does when it stops. A crash before that, or a failure,
// leaves them to the next start; until then they lack the newest entries.
func withTrail(ctx context.Context, cfg *config.Config, s store.Store, log *slog.Logger, do func(context.Context, *audit.Trail) error) error {
	o := app.TrailOptions(cfg)
	o.Logger = log
	trail, err := audit.Open(ctx, s, o)
	if err != nil {
		return err
	}
	if err = errors.Join(do(ctx, trail), trail.Close(ctx)); err == nil {
		files := tiles.NewKeeper(tiles.Open(filepath.Join(cfg.DataDir, tiles.Dir)), trail, trail.Generations, log)
		if err := files.Run(ctx); err != nil {
			log.Warn("the newest entries are not in the trail's files; the next start writes them", "error", err)
		}
	}
	return err
}
