package cli

import (
	"errors"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/internal/control/console"
	"github.com/auditrelay/auditrelay/internal/json/jsondiff"
)

// hangups are the SIGHUPs of this process; a further one while one waits adds nothing. ignore gives
// the signal back.
func hangups() (asked <-chan os.Signal, ignore func()) {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGHUP)
	return signals, func() { signal.Stop(signals) }
}

func newReload() *cobra.Command {
	var req console.Reload
	output := orJSON("print JSON: {\"applied\", \"dry_run\", \"changes\", \"files\", \"changing_over\", \"config_sha256\"}")
	return withFlags(question(&cobra.Command{
		Use:   "reload",
		Short: "Have a running relay apply its edited configuration",
		Long: exits("0 applied (with --dry-run: it would be), 1 not applied, or the relay cannot be asked, 2 a change takes a restart, and nothing was applied",
			`Has the running relay read its configuration file again, with the environment variables of
its start, and apply it: as SIGHUP does, but with an answer. Either all of it is applied, or,
if the file is wrong or a change takes a restart, nothing. Pushes are taken all the while, no
event is lost, and each changed sink goes on from its position: at most the batch under way
is delivered twice.

--dry-run shows what would change. Secrets are compared, and not shown.`),
		Example: `  auditrelay reload --dry-run --config relay.yaml
  auditrelay reload --config relay.yaml`,
	}, &relayFlags{}, output, func(cmd *cobra.Command, client *console.Client, _ []string) (console.Reloaded, error) {
		return client.Reload(cmd.Context(), req)
	}, printReloaded, func(done console.Reloaded) error {
		if len(done.Restarts()) > 0 {
			return errTrouble
		}
		return nil
	}), onOff(&req.DryRun, "dry-run", "show what would change, and change nothing"))
}

func newConfigDiff() *cobra.Command {
	req := console.Reload{DryRun: true}
	output := orJSON("print JSON: {\"changes\", \"files\", \"config_sha256\", …}")
	return question(&cobra.Command{
		Use:   "diff [FILE]",
		Short: "Show what a configuration would change in a running relay",
		Long: exits("0 nothing differs, 1 failed, or the relay cannot be asked, 2 something differs",
			`Compares a configuration FILE, or the edited one of the relay, with what the running relay
was started with or has reloaded. Each field that differs is shown with whether a reload
applies it. The relay reads the file, with the environment variables of its start: so it must
be able to. Secrets are compared, and not shown; nothing is changed.`),
		Example: `  auditrelay config diff --config /etc/auditrelay/relay.yaml
  auditrelay config diff edited.yaml --config /etc/auditrelay/relay.yaml`,
		Args: func(_ *cobra.Command, args []string) (err error) {
			if len(args) > 1 {
				return errors.New("give one configuration FILE, or none for the edited one of the relay")
			}
			if len(args) == 1 {
				req.File, err = filepath.Abs(args[0])
			}
			return err
		},
	}, &relayFlags{}, output, func(cmd *cobra.Command, client *console.Client, _ []string) (console.Reloaded, error) {
		return client.Reload(cmd.Context(), req)
	}, printReloaded, func(done console.Reloaded) error {
		if len(done.Changes)+len(done.Files) > 0 {
			return errTrouble
		}
		return nil
	})
}

func printReloaded(p *page, done console.Reloaded) {
	if len(done.Changes) > 0 {
		p.row("FIELD", "BEFORE", "AFTER", "APPLIED")
	}
	for _, c := range done.Changes {
		p.row(printable(c.Field), shownValue(c.Old), shownValue(c.New), map[config.Rule]string{config.Live: "live", config.Restart: "by a restart: " + c.Reason}[c.Rule])
	}
	for _, file := range done.Files {
		p.row(printable(file), "", "another content", "live")
	}
	switch restarts := len(done.Restarts()); {
	case restarts > 0:
		p.line("%d of the changes take a restart, so that nothing is applied: undo them, or restart the relay", restarts)
	case len(done.Changes)+len(done.Files) == 0:
		p.line("the relay runs with this configuration already")
	case done.DryRun:
		p.line("nothing was changed; 'auditrelay reload' would apply it")
	default:
		p.line("the relay runs with the edited configuration")
	}
	if len(done.ChangingOver) > 0 {
		p.line("still finishing a delivery as they were before, and changing over when it ends: %s", strings.Join(done.ChangingOver, ", "))
	}
}

// shownValue is a plain JSON value for people.
func shownValue(v any) string {
	if v == nil {
		return "-"
	}
	if text, ok := v.(string); ok {
		return printable(text)
	}
	return short(string(jsondiff.Encode(v)))
}
