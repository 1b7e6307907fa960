package cli

import (
	"encoding/json"
	"errors"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/auditrelay/auditrelay/internal/console"
)

func newCredentials() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "credentials",
		Short: "List, rotate and revoke the push credentials of a running relay",
		RunE:  showHelp,
		Args:  noArgs,
	}
	cmd.AddCommand(newCredentialsList(), newRotate("credentials"), newCredentialsRevoke())
	return cmd
}

// environmentOf reads PROJECT/ENVIRONMENT.
func environmentOf(text string) (console.OfEnvironment, error) {
	project, environment, ok := strings.Cut(text, "/")
	if !ok || project == "" || environment == "" {
		return console.OfEnvironment{}, errors.New("give PROJECT/ENVIRONMENT, such as shop/live")
	}
	return console.OfEnvironment{Project: project, Environment: environment}, nil
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
