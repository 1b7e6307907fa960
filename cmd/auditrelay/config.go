package main

import "github.com/spf13/cobra"

func newConfig() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "config",
		Short: "Write an example configuration, or check your own",
		Args:  subcommands,
		RunE:  showHelp,
	}
	cmd.AddCommand(newConfigInit(), newConfigCheck())
	return cmd
}
