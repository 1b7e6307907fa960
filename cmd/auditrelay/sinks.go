package main

import "github.com/spf13/cobra"

func newSinks() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "sinks",
		Short: "See how far each sink has come, or retire one",
		Args:  cobra.NoArgs,
		RunE:  showHelp,
	}
	cmd.AddCommand(newSinksList(), newSinksRetire())
	return cmd
}
