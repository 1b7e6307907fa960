package cli

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"runtime"
	"runtime/debug"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/internal/app"
	"github.com/auditrelay/auditrelay/internal/control/admin"
	"github.com/auditrelay/auditrelay/relay"
)

func (p Program) newRoot() *cobra.Command {
	root := group("", p.commands()...)
	root.Version, root.SilenceErrors, root.SilenceUsage = p.build().String(), true, true
	root.SetVersionTemplate("{{.Version}}\n")
	root.SetFlagErrorFunc(flagError)
	showHelpWithin(root)
	markFailures(root)
	return root
}

// commands are all of them.
func (p Program) commands() []*cobra.Command {
	return []*cobra.Command{
		p.newRun(), newReload(), newStatus(), newTap(), newReplay(), p.newVersion(), document("openapi", admin.OpenAPI), newHealthcheck(),
		group("config", p.newConfigInit(), p.newConfigCheck(), newConfigDiff(), document("config schema", config.Schema)),
		group("console", newConsoleOpen(), group("console sessions", newSessionsList(), newSessionsRevoke())),
		group("routing", p.newRoutingTry()),
		group("cluster", newClusterStatus()),
		group("sinks", p.newSinksCheck(), newSinksList(), newSinksHistory(), newSinksRetire()),
		newDeadletters(),
		group("credentials", newCredentialsList(), newRotate("credentials"), newCredentialsRevoke()),
		group("streaming", newStreamingStatus(), newStreamingPlan(), newStreamingApply(), newRotate("streaming")),
		group("silence", newSilenceAdd(), newSilenceList(), newSilenceEnd()),
		group("policy", p.newPolicyList(), p.newPolicyTest(), p.newPolicyStatus()),
		group("settings", p.newSettingsList(), p.newSettingsShow(), p.newSettingsDiff(), p.newSettingsWhoCan()),
		group("trail", p.newTrailList(), p.newTrailShow(), p.newTrailDiff(), p.newTrailExport(), p.newTrailVerify(), p.newTrailProve(), newTrailAnnotate(),
			newTrailForward(), newTrailProveEvent(), newTrailListSpan(), newTrailVerifySpan(), newTrailKeygen(), p.newTrailRotateKey(), newTrailArchive()),
		group("journal", p.newJournalInspect(), p.newJournalVerify(), p.newJournalRepair(), newJournalAccept(), p.newJournalMove(), p.newJournalLetGo()),
		group("migrate", newMigratePlan(), p.newMigrateRun(), newMigrateStatus()),
		newWorkspace(), p.newWitness(),
	}
}

// showHelp runs a command with subcommands only.
func showHelp(cmd *cobra.Command, _ []string) error { return cmd.Help() }

// noArgs refuses arguments: most likely a configuration without its flag.
func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	text := fmt.Sprintf("%s takes no arguments, but got %q", cmd.CommandPath(), args[0])
	if cmd.Flags().Lookup("config") != nil {
		text += "; name a configuration with --config FILE"
	}
	return errors.New(text)
}

// subcommands refuses unknown subcommands of cmd, and suggests the nearest.
func subcommands(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	text := fmt.Sprintf("unknown command %q for %q", args[0], cmd.CommandPath())
	if meant := nearest(cmd, args[0]); len(meant) > 0 {
		text += "; did you mean " + strings.Join(meant, " or ") + "?"
	}
	return errors.New(text)
}

// nearest returns the subcommands that typed resembles most.
func nearest(cmd *cobra.Command, typed string) []string {
	for cmd.SuggestionsMinimumDistance = 1; cmd.SuggestionsMinimumDistance <= 3; cmd.SuggestionsMinimumDistance++ {
		if meant := cmd.SuggestionsFor(typed); len(meant) > 0 {
			return meant
		}
	}
	return nil
}

func (p Program) newRun() *cobra.Command {
	which := p.configured()
	which.usage = "the configuration `FILE` (see 'auditrelay config init')"
	return command("run", alone(""), func(cmd *cobra.Command, _ []string, _ alone) error {
		asked, ignore := hangups() // first, so that an edit after the configuration was read is not missed
		defer ignore()
		cfg, source, warnings, err := which.kinds.LoadToRun(which.file)
		if err != nil {
			return err
		}
		level := new(slog.LevelVar)
		log := loggerAt(cmd.ErrOrStderr(), cfg.Log, level)
		weak := &weaknesses{log: log}
		weak.tell(warnings)
		info, _ := debug.ReadBuildInfo()
		warnOfCgo(log, info)
		service := newSupervisor(log)
		socket, err := handedOver()
		if err != nil {
			return err
		}
		next := &successor{socket: socket}
		running, ended := next.follow(cmd.Context())
		defer ended()
		err = service.supervised(cmd.Context(), func(ready func()) error {
			return app.Run(running, cfg, app.Options{
				Logger: log, Version: p.build().Version, Kinds: p.Kinds, Socket: socket, Started: func(app.Addresses) { ready() },
				Reloads: app.Reloads{
					Asked: asked, Level: level, Source: source,
					Begun: func() func(string) { return service.reloads(cmd.Context()) },
					Load: func(file string) (app.Loaded, error) {
						cfg, source, warnings, err := which.kinds.LoadToRun(cmp.Or(file, which.file))
						if err == nil && file == "" {
							weak.tell(warnings) // reloads come one after another
						}
						return app.Loaded{Config: cfg, Source: source}, err
					},
				},
			})
		})
		if err != nil && next.wanted.Load() {
			log.Error("the relay has not stopped as it should; it is replaced all the same", "error", err)
		}
		return errors.Join(err, next.replace(cmd.Context()))
	}, which)
}

// build describes this binary; `version --json` prints it.
type build struct {
	Version  string `json:"version"`
	Revision string `json:"revision,omitempty"`
	Time     string `json:"time,omitempty"`
	Modified bool   `json:"modified"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

func (p Program) newVersion() *cobra.Command {
	output := orJSON("print JSON")
	return command("version", alone(""), func(cmd *cobra.Command, _ []string, _ alone) error {
		if output.isJSON() {
			return json.NewEncoder(cmd.OutOrStdout()).Encode(p.build())
		}
		return say(cmd.OutOrStdout(), "%s", p.build())
	}, &output)
}

func (p Program) build() build {
	b := build{Version: p.Version, Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return b
	}
	if b.Version == "" {
		b.Version = info.Main.Version
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			b.Revision = s.Value
		case "vcs.time":
			b.Time = s.Value
		case "vcs.modified":
			b.Modified = s.Value == "true"
		}
	}
	return b
}

// String returns one line for people.
func (b build) String() string {
	text := "auditrelay " + b.Version
	if b.Revision != "" {
		text += " (" + b.Revision[:min(len(b.Revision), 12)]
		if b.Modified {
			text += ", modified"
		}
		text += ")"
	}
	return text + " " + b.Go + " " + b.Platform
}

// document is a command that prints a text of the program.
func document(path string, text func() []byte) *cobra.Command {
	return command(path, alone(""), func(cmd *cobra.Command, _ []string, _ alone) error {
		_, err := cmd.OutOrStdout().Write(text())
		return err
	})
}

func newHealthcheck() *cobra.Command {
	var url string
	var timeout time.Duration
	return command("healthcheck", alone(""), func(cmd *cobra.Command, _ []string, _ alone) error {
		ctx, cancel := context.WithTimeout(cmd.Context(), timeout)
		defer cancel()
		return healthcheck(ctx, url)
	}, flagFunc(func(flags *pflag.FlagSet) {
		flags.StringVar(&url, "url", "http://127.0.0.1:9100/readyz", "the `URL` to ask")
		flags.DurationVar(&timeout, "timeout", 5*time.Second, "how long to wait")
	}))
}

func healthcheck(ctx context.Context, url string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil || request.URL.Host == "" || request.URL.Scheme != "http" && request.URL.Scheme != "https" {
		return misuse{fmt.Errorf("--url %q: write an address such as http://127.0.0.1:9100/readyz", url)}
	}
	client := http.Client{}
	if host := request.URL.Hostname(); config.IsLoopback(host) {
		// A certificate names the machine, not loopback. Nothing secret is sent.
		client.Transport = &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
	}
	response, err := client.Do(request)
	if err != nil {
		return fmt.Errorf("check health: %w", err)
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode >= 200 && response.StatusCode < 300 {
		return nil
	}
	body, _ := io.ReadAll(io.LimitReader(response.Body, 1<<10)) // for the message only
	return fmt.Errorf("check health: %s: %s", response.Status, strings.TrimSpace(string(body)))
}

// weaknesses are those of a configuration that is loaded again and again. Each is told once, until a
// configuration is without it. A number in a reason, such as the room on a disk, makes no other one.
type weaknesses struct {
	log  *slog.Logger
	told map[string]bool
}

func (w *weaknesses) tell(warnings []config.Problem) {
	now := map[string]bool{}
	for _, p := range warnings {
		key := p.Field + " " + relay.Digitless(p.Reason)
		if now[key] = true; !w.told[key] {
			w.log.Warn("the configuration has a weakness", "line", p.Line, "field", p.Field, "reason", p.Reason)
		}
	}
	w.told = now
}

// newLogger makes the process's logger; c has been validated.
func newLogger(w io.Writer, c config.Log) *slog.Logger { return loggerAt(w, c, new(slog.LevelVar)) }

// loggerAt is newLogger with a level that may be changed later.
func loggerAt(w io.Writer, c config.Log, level *slog.LevelVar) *slog.Logger {
	_ = level.UnmarshalText([]byte(c.Level)) // a validated name
	options := &slog.HandlerOptions{Level: level}
	if c.Format == "json" {
		return slog.New(slog.NewJSONHandler(w, options))
	}
	return slog.New(slog.NewTextHandler(w, options))
}
