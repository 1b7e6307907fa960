package cli

import "github.com/spf13/cobra"

func (p Program) newSinks() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "sinks",
		Short: "Check the sinks, list their lag, or retire one",
		Args:  subcommands,
		RunE:  showHelp,
	}
	cmd.AddCommand(p.newSinksCheck(), newSinksList(), newSinksRetire())
	return cmd
}
