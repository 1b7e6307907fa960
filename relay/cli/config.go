package cli

import "github.com/spf13/cobra"

func (p Program) newConfig() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "config",
		Short: "Write an example configuration, or check your own",
		Args:  subcommands,
		RunE:  showHelp,
	}
	cmd.AddCommand(newConfigInit(), p.newConfigCheck())
	return cmd
}
