package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/internal/app"
	"github.com/auditrelay/auditrelay/internal/control/console"
	"github.com/auditrelay/auditrelay/internal/store"
	"github.com/auditrelay/auditrelay/internal/trail/audit"
	"github.com/auditrelay/auditrelay/internal/trail/tiles"
)

func (p Program) newTrailRotateKey() *cobra.Command {
	var file, nextPublic string
	var yes bool
	cmd := &cobra.Command{
		Use:   "rotate-key",
		Short: "Replace the signing key of the audit trail: the old one signs the new",
		Long: `Replaces the signing key of the audit trail. An entry under the old key names the new one, a
last checkpoint under the old key covers it, and a new generation of the trail begins under
the new key. Whoever knows the first public key follows the chain.

The new key takes the place of the old one in audit.key_file; the old one is gone, as it
is of no use except to forge the past. Nothing needs it to verify the trail.

A running relay does it at this command, and goes on under the new key at once; of a stopped
one, the command does it itself. With journal.url, several relays may share the key: stop all
of them first. You can end this command and begin it again at any moment.

Witnesses (audit.witnesses) take no new generation by themselves: give their operators the
printed public key. Until they accept it, they do not cosign the trail.

With --public the new key is elsewhere (audit.key_env, audit.sign_command, another file):
the old key only names it. Then put it into the configuration, and start the relay again.

Exit codes: 0 replaced, 1 failed or declined, 64 wrong usage.`,
		Example: `  auditrelay trail rotate-key --config relay.yaml
  auditrelay trail rotate-key --config relay.yaml --public example.com/auditrelay+3ef2f7d1+AfJt0ZbW…`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, _, err := p.Kinds.Config().Load(file)
			if err != nil {
				return err
			}
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
		},
	}
	addConfigFlag(cmd, &file, "the relay's configuration `FILE`")
	needConfig(cmd, &file)
	cmd.Flags().StringVar(&nextPublic, "public", "", "the public `KEY` of a new key elsewhere, NAME+HASH+KEY")
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask")
	return cmd
}

// sayRotated says which key the trail has now, or names as its next one.
func sayRotated(cmd *cobra.Command, public string, elsewhere bool) error {
	text := "the key is replaced; checkpoints are signed with %s\n"
	if elsewhere {
		text = "the trail names %s as its next key; put it into the configuration, and start the relay again\n"
	}
	_, err := fmt.Fprintf(cmd.OutOrStdout(), text, public)
	return err
}

// rotateKey does the steps described in internal/trail/audit/rotate.go on the trail of a stopped
// relay; each can be repeated.
func rotateKey(cmd *cobra.Command, cfg *config.Config, version, elsewhere string) (err error) {
	log := newLogger(cmd.ErrOrStderr(), config.Log{Level: "warn", Format: "text"})
	s, err := app.OpenStore(cmd.Context(), cfg, app.StoreOptions{Version: version, Logger: log})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	next := elsewhere
	if next == "" {
		if next, err = audit.NextKey(cfg.Audit.KeyFile); err != nil {
			return err
		}
	}
	name := func(ctx context.Context, trail *audit.Trail) error {
		return trail.NameNextKey(ctx, next, thisProcess())
	}
	if err := withTrail(cmd.Context(), cfg, s, log, name); err != nil {
		return err
	}
	if elsewhere != "" {
		return sayRotated(cmd, next, true)
	}
	if err := audit.UseNextKey(cfg.Audit.KeyFile); err != nil {
		return err
	}
	public := ""
	newest := func(_ context.Context, trail *audit.Trail) error { public = trail.PublicKey(); return nil }
	if err := withTrail(cmd.Context(), cfg, s, log, newest); err != nil {
		return err
	}
	return sayRotated(cmd, public, false)
}

// withTrail opens the trail of a stopped relay, and signs it after do. Then it brings the files
// for public tools up to date, as a relay does when it stops. A crash before that, or a failure,
// leaves them to the next start; until then they lack the newest entries.
func withTrail(ctx context.Context, cfg *config.Config, s store.Store, log *slog.Logger, do func(context.Context, *audit.Trail) error) error {
	o := app.TrailOptions(cfg)
	o.ReadAll, o.Logger = true, log
	trail, err := audit.Open(ctx, s, o)
	if err != nil {
		return err
	}
	if err = errors.Join(do(ctx, trail), trail.Stop(ctx)); err == nil {
		files := tiles.NewKeeper(tiles.Open(filepath.Join(cfg.DataDir, tiles.Dir)), trail, trail.Generations, log)
		if err := files.Run(ctx); err != nil {
			log.Warn("the newest entries are not in the trail's files; the next start writes them", "error", err)
		}
	}
	return errors.Join(err, trail.Close(ctx))
}
