package cli

import (
	"github.com/spf13/cobra"

	"github.com/auditrelay/auditrelay/internal/app"
)

func (p Program) newRun() *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Run the relay",
		Long: `Runs the relay in the foreground, with its log on standard error. SIGINT or SIGTERM
ends it cleanly within shutdown_timeout of the configuration; a second signal ends it
at once.

Exit codes: 0 ended cleanly, 1 failed, 64 wrong usage.`,
		Example: "  auditrelay run --config /etc/auditrelay/relay.yaml",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, warnings, err := p.Kinds.Config().LoadToRun(file)
			if err != nil {
				return err
			}
			log := newLogger(cmd.ErrOrStderr(), cfg.Log)
			for _, w := range warnings {
				log.Warn("the configuration has a weakness", "line", w.Line, "field", w.Field, "reason", w.Reason)
			}
			return app.Run(cmd.Context(), cfg, app.Options{Logger: log, Version: p.build().Version, Kinds: p.Kinds})
		},
	}
	addConfigFlag(cmd, &file, "the configuration `FILE` (see 'auditrelay config init')")
	needConfig(cmd, &file)
	return cmd
}
