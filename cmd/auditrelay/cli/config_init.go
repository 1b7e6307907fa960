package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/spf13/cobra"

	"github.com/auditrelay/auditrelay/config"
)

func newConfigInit() *cobra.Command {
	var force bool
	cmd := &cobra.Command{
		Use:   "init [FILE]",
		Short: "Write an example configuration with every field explained",
		Long: `Writes an example configuration to FILE, or prints it without FILE. It explains
every field; optional fields are commented out.

An existing FILE is left alone, except with --force.

Exit codes: 0 written, 1 not written, 64 wrong usage.`,
		Example: `  auditrelay config init relay.yaml
  auditrelay config init | less              # read the manual of all fields`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				_, err := cmd.OutOrStdout().Write(config.Example())
				return err
			}
			if err := writeExample(args[0], force); err != nil {
				return err
			}
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "wrote %s; edit it, then run 'auditrelay config check %s'\n", args[0], args[0])
			return err
		},
	}
	cmd.Flags().BoolVar(&force, "force", false, "replace an existing FILE")
	return cmd
}

// writeExample makes the file readable by its owner alone, for the secrets to come.
func writeExample(path string, force bool) error {
	flags := os.O_WRONLY | os.O_CREATE | os.O_EXCL
	if force {
		flags = os.O_WRONLY | os.O_CREATE | os.O_TRUNC
	}
	f, err := os.OpenFile(path, flags, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("%s exists; give --force to replace it", path)
	}
	if err != nil {
		return fmt.Errorf("write example: %w", err)
	}
	_, err = f.Write(config.Example())
	if err := errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("write example: %w", err)
	}
	return nil
}
