package cli

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// valueForms say what a flag of a type takes.
var valueForms = map[string]string{
	"duration": "how long, as 90s, 5m or 2h",
	"int":      "a whole number", "int64": "a whole number", "uint64": "a whole number",
	"float64": "a number", "bool": "true or false",
}

// flagError says what to write in place of a flag that is wrong. If the command before it is
// unknown, that is what it says: the flag may be right for the command that was meant.
func flagError(cmd *cobra.Command, err error) error {
	var unknown *pflag.NotExistError
	var invalid *pflag.InvalidValueError
	switch {
	case errors.As(err, &unknown):
		if cmd.HasSubCommands() {
			if wrong := subcommands(cmd, cmd.Flags().Args()); wrong != nil {
				return wrong
			}
		}
		if meant := flagsAsCommands(cmd).SuggestionsFor(unknown.GetSpecifiedName()); len(meant) > 0 {
			return fmt.Errorf("%w; did you mean --%s?", err, strings.Join(meant, " or --"))
		}
	case errors.As(err, &invalid):
		if form := valueForms[invalid.GetFlag().Value.Type()]; form != "" {
			return fmt.Errorf("--%s %q: write %s", invalid.GetFlag().Name, invalid.GetValue(), form)
		}
	}
	return err
}

// flagsAsCommands has a command for each flag, so that flags are suggested as commands are.
func flagsAsCommands(cmd *cobra.Command) *cobra.Command {
	all := &cobra.Command{SuggestionsMinimumDistance: 2}
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		all.AddCommand(&cobra.Command{Use: f.Name, Hidden: f.Hidden, Run: func(*cobra.Command, []string) {}})
	})
	return all
}
