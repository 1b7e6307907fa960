package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/internal/app"
)

func (p Program) newJournalLetGo() *cobra.Command {
	var file string
	var home app.Home
	var yes bool
	cmd := &cobra.Command{
		Use:   "let-go",
		Short: "Give up a journal no longer named in the configuration",
		Long: `A relay refuses to start with another journal than before (journal.url, or with it
journal.stream_prefix) while the old one holds undelivered events or dead letters.
Usually, start it with the old settings until 'auditrelay sinks list' shows nothing
pending. If you cannot, or do not want those events, give them up with this
command: the relay then starts without them. The files or streams of the old
journal stay, and the audit trail records the loss. It asks first, except with --yes.
Stop the relay first.

Exit codes: 0 given up, 1 not given up, 64 wrong usage.`,
		Example: `  auditrelay journal let-go --config relay.yaml
  auditrelay journal let-go --config relay.yaml --stream-prefix AUDITRELAY --url nats://old-1:4222`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, _, err := p.Kinds.Config().Load(file)
			if err != nil {
				return err
			}
			log := newLogger(cmd.ErrOrStderr(), config.Log{Level: "warn", Format: "text"})
			return app.LetJournalGo(cmd.Context(), cfg, home, thisProcess(), log, func(left app.Left) error {
				question := fmt.Sprintf("Give up %v in %s?", left, home)
				if err := confirm(cmd, yes, question); err != nil {
					return err
				}
				_, err := fmt.Fprintf(cmd.OutOrStdout(), "given up: %v; the journal's files or streams stay\n", left)
				return err
			})
		},
	}
	flags := cmd.Flags()
	addConfigFlag(cmd, &file, "the relay's configuration `FILE`, with the new settings")
	needConfig(cmd, &file)
	flags.StringVar(&home.Prefix, "stream-prefix", "", "the old journal's stream_prefix, with --url")
	flags.StringVar(&home.URL, "url", "", "the old journal's url, as the refusal names it; leave out for the data directory")
	yesFlag(&yes).addTo(cmd)
	cmd.MarkFlagsRequiredTogether("stream-prefix", "url")
	return cmd
}
