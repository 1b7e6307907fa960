package cli

import (
	"encoding/json"
	"errors"
	"io"
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

// printAs prints v as JSON, or for people.
func printAs[T any](w io.Writer, asJSON bool, v T, people func(io.Writer, T) error) error {
	if asJSON {
		return printJSON(w, v)
	}
	return people(w, v)
}

func printJSON(w io.Writer, v any) error {
	out := json.NewEncoder(w)
	out.SetIndent("", "  ")
	return out.Encode(v)
}
