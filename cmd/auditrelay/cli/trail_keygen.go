package cli

import (
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/auditrelay/auditrelay/internal/trail/audit"
)

func newTrailKeygen() *cobra.Command {
	var origin, file, publicFile string
	cmd := &cobra.Command{
		Use:   "keygen",
		Short: "Make a signing key for the audit trail, and print its public key",
		Long: `Makes a key to sign the checkpoints of an audit trail, in a new file readable by its owner
alone, and prints the public key in the form NAME+HASH+KEY. To verify the trail, a person
needs the public key, and nothing else. Keep the file outside of data_dir, and name it in
audit.key_file. An existing file is left alone.

With --public it makes no key: it prints the public key of a PEM file in the same form,
for audit.public_key, which goes with audit.sign_command.

The origin names the trail for good, as a domain and path of yours.

Exit codes: 0 done, 1 failed, 64 wrong usage.`,
		Example: `  auditrelay trail keygen --origin example.com/auditrelay --file /etc/auditrelay/audit.key
  auditrelay trail keygen --origin example.com/auditrelay --public hsm-public.pem`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			public, err := keygen(origin, file, publicFile)
			if err != nil {
				return err
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), public)
			return err
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&origin, "origin", "", "the `NAME` of the trail")
	flags.StringVar(&file, "file", "", "the new `FILE` for the key")
	flags.StringVar(&publicFile, "public", "", "a PEM `FILE` with an Ed25519 public key")
	before(cmd, func() error {
		switch {
		case origin == "":
			return errors.New("give --origin, the name of the trail, such as example.com/auditrelay")
		case (file == "") == (publicFile == ""):
			return errors.New("give one of --file, for a new key, and --public, for the public half of a key elsewhere")
		}
		return nil
	})
	return cmd
}

func keygen(origin, file, publicFile string) (public string, err error) {
	if file != "" {
		return audit.GenerateKey(file, origin)
	}
	text, err := os.ReadFile(publicFile)
	if err != nil {
		return "", fmt.Errorf("read public key: %w", err)
	}
	return audit.PublicKey(origin, text)
}
