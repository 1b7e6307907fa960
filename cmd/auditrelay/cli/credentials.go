package cli

import (
	"errors"
	"strings"

	"github.com/spf13/cobra"

	"github.com/auditrelay/auditrelay/internal/control/console"
)

// environmentOf reads PROJECT/ENVIRONMENT.
func environmentOf(text string) (console.OfEnvironment, error) {
	project, environment, ok := strings.Cut(text, "/")
	if !ok || project == "" || environment == "" {
		return console.OfEnvironment{}, errors.New("give PROJECT/ENVIRONMENT, such as shop/live")
	}
	return console.OfEnvironment{Project: project, Environment: environment}, nil
}

// ofEnvironment reads the first argument into an environment, once all arguments are checked.
func ofEnvironment(into *console.OfEnvironment, check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if err := check(cmd, args); err != nil {
			return err
		}
		of, err := environmentOf(args[0])
		into.Project, into.Environment = of.Project, of.Environment
		return err
	}
}
