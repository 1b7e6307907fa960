package cli

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/auditrelay/auditrelay/config"
)

// schemaFile is the name by which a written configuration names its schema, in its own folder.
const schemaFile = "auditrelay.schema.json"

func (p Program) newConfigInit() *cobra.Command {
	var force, quiet bool
	return command("config init", alone(""), func(cmd *cobra.Command, args []string, _ alone) error {
		in, _ := cmd.InOrStdin().(*os.File)
		out, _ := cmd.OutOrStdout().(*os.File)
		file := cmp.Or(append(args, "")...)
		switch {
		case !quiet && isTerminal(in) && isTerminal(out):
			return p.interviewAt(cmd.Context(), in, out, cmp.Or(file, "relay.yaml"), force)
		case file == "":
			_, err := cmd.OutOrStdout().Write(config.Example())
			return err
		}
		if err := writeConfig(file, config.Example(), force); err != nil {
			return err
		}
		return say(cmd.OutOrStdout(), "wrote %s, and %s next to it for editors; edit it, then run 'auditrelay config check %s'", file, schemaFile, file)
	}, onOff(&force, "force", "replace an existing FILE"), onOff(&quiet, "non-interactive", "do not ask, and write the example"), takes(cobra.MaximumNArgs(1)))
}

// writeConfig writes the configuration, readable by its owner alone for the secrets to come, and
// its schema.
func writeConfig(path string, text []byte, force bool) error {
	write := writeNew
	if force {
		write = func(path string, text []byte) error { return os.WriteFile(path, text, 0o600) }
	}
	err := write(path, text)
	if errors.Is(err, fs.ErrExist) {
		return errExists(path)
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(filepath.Dir(path), schemaFile), config.Schema(), 0o644) //nolint:gosec // it is public
	}
	if err != nil {
		return fmt.Errorf("write the configuration: %w", err)
	}
	return nil
}

func errExists(path string) error { return fmt.Errorf("%s exists; give --force to replace it", path) }

// writeNew writes a file that its owner alone can read, where there is none yet.
func writeNew(path string, text []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	return errors.Join(err, f.Close())
}
