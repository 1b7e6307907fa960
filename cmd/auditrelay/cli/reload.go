package cli

import (
	"cmp"
	"errors"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/internal/control/console"
	"github.com/auditrelay/auditrelay/internal/jsontext"
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
	output := orJSON("print JSON: {\"applied\", \"dry_run\", \"refused\", \"changes\", \"files\", \"changing_over\", \"config_sha256\"}")
	return question("reload", &relayFlags{}, output, func(cmd *cobra.Command, client *console.Client, _ []string) (console.Reloaded, error) {
		done, err := client.Reload(cmd.Context(), req)
		if err == nil {
			err = cmp.Or(errTrouble.when(len(done.Restarts()) > 0), errReported.when(done.Refused != ""))
		}
		return done, err
	}, printReloaded, onOff(&req.DryRun, "dry-run", "show what would change, and change nothing"))
}

func newConfigDiff() *cobra.Command {
	req := console.Reload{DryRun: true}
	output := orJSON("print JSON: {\"changes\", \"files\", \"config_sha256\", …}")
	return question("config diff", &relayFlags{}, output, func(cmd *cobra.Command, client *console.Client, _ []string) (console.Reloaded, error) {
		done, err := client.Reload(cmd.Context(), req)
		if err == nil {
			err = errTrouble.when(len(done.Changes)+len(done.Files) > 0)
		}
		return done, err
	}, printReloaded, takes(func(_ *cobra.Command, args []string) (err error) {
		if len(args) > 1 {
			return errors.New("give one configuration FILE, or none for the edited one of the relay")
		}
		if len(args) == 1 {
			req.File, err = filepath.Abs(args[0])
		}
		return err
	}))
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
	for _, c := range done.Changes {
		if c.WholeSink() && c.Rule == config.Live {
			p.line("%s: %s", printable(c.Field), c.Reason)
		}
	}
	restarts := len(done.Restarts())
	if done.Refused != "" {
		p.line("'auditrelay reload' would refuse it, and apply nothing: %s", printable(done.Refused))
	}
	switch {
	case restarts > 0:
		p.line("%d of the changes %s a restart, so that nothing is applied: undo them, or restart the relay", restarts, map[bool]string{true: "takes", false: "take"}[restarts == 1])
	case done.Refused != "":
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
	return short(string(jsontext.Encode(v)))
}
