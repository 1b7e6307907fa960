package main

import "github.com/spf13/cobra"

func newSinks() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "sinks",
		Short: "Check the sinks, list their lag, or retire one",
		Args:  subcommands,
		RunE:  showHelp,
	}
	cmd.AddCommand(newSinksCheck(), newSinksList(), newSinksRetire())
	return cmd
}
