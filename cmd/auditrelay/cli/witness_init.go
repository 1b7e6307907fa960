package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/spf13/cobra"

	"github.com/auditrelay/auditrelay/internal/app"
	"github.com/auditrelay/auditrelay/internal/store/durable"
	"github.com/auditrelay/auditrelay/internal/trail/witness"
)

func newWitnessInit() *cobra.Command {
	var f witnessFlags
	var name string
	cmd := &cobra.Command{
		Use:   "init",
		Short: "Make a witness's key and empty state",
		Long: `Makes the signing key of a new witness, where there is none, and its empty state, and
prints the public key. Give this key to the operators of the relays: it goes into
audit.witnesses. It refuses to replace state: a witness without memory may sign another
history than before.

Exit codes: 0 success, 1 failure, 64 wrong usage.`,
		Example: "  auditrelay witness init --data-dir /var/lib/auditrelay-witness --name witness.example.com/audit",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := durable.MakeDir(f.dir); err != nil {
				return err
			}
			key, err := witness.LoadKey(f.key)
			if errors.Is(err, fs.ErrNotExist) {
				key, err = witness.GenerateKey(f.key, name)
			}
			if err != nil {
				return err
			}
			if err := witness.Create(app.WitnessState(f.dir), key); err != nil {
				return err
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), key.Public())
			return err
		},
	}
	f.addTo(cmd)
	cmd.Flags().StringVar(&name, "name", "", "the witness's `NAME`: a domain and path of yours, without a scheme")
	needFlags(cmd, "name")
	return cmd
}

func newWitnessRecover() *cobra.Command {
	var f witnessFlags
	cmd := &cobra.Command{
		Use:   "recover FILE…",
		Short: "Make a witness's lost state again",
		Long: `Makes the lost state of a stopped witness again, from checkpoints with the witness's own
signature: the newest one of each log, as its relay serves it at /tlog/latest/checkpoint. Of
each log the largest counts. Existing state goes forward only.

A dishonest log can show an older checkpoint than the newest cosigned one. So take it
from independent readers too, as from a sink's trail.checkpoint events. Without any
checkpoint of a log, make a new witness with a new key instead.

Exit codes: 0 success, 1 failure, 64 wrong usage.`,
		Example: `  curl -so a.checkpoint -H @token.header https://relay.example.com/tlog/latest/checkpoint
  auditrelay witness recover --data-dir /var/lib/auditrelay-witness a.checkpoint`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			key, err := witness.LoadKey(f.key)
			if err != nil {
				return err
			}
			var checkpoints []string
			for _, file := range args {
				text, err := os.ReadFile(file)
				if err != nil {
					return fmt.Errorf("read checkpoint: %w", err)
				}
				checkpoints = append(checkpoints, string(text))
			}
			logs, err := app.RecoverWitness(f.dir, key, checkpoints)
			if err != nil {
				return err
			}
			for _, l := range logs {
				if _, err := fmt.Fprintf(cmd.OutOrStdout(), "%s: %d entries\n", printable(l.Origin), l.Size); err != nil {
					return err
				}
			}
			return nil
		},
	}
	f.addTo(cmd)
	return cmd
}
