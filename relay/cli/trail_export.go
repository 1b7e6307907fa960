package cli

import (
	"encoding/json"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/auditrelay/auditrelay/internal/timeline"
)

func (p Program) newTrailExport() *cobra.Command {
	which := trailFlags{kinds: p.Kinds.Config()}
	var chosen entryFlags
	var path string
	cmd := &cobra.Command{
		Use:   "export",
		Short: "Write whole entries of the audit trail as JSON lines",
		Long: `Writes whole entries, one JSON object a line, the oldest first: with the states before and
after, the details, and the hash of the entry's leaf (base64). Entries that cannot be read
are left out; 'auditrelay journal verify' names them.
` + whichTrail + `

Exit codes: 0 written, 1 failed, 2 wrong usage.`,
		Example: `  auditrelay trail export --config relay.yaml > trail.jsonl
  auditrelay trail export --config relay.yaml --since 2026-03-01 --severity medium --file march.jsonl`,
		Args: cobra.NoArgs,
		RunE: which.reads(func(cmd *cobra.Command, _ []string, source trailSource) error {
			count := 0
			err := writeTo(path, cmd.OutOrStdout(), func(w io.Writer) error {
				lines := json.NewEncoder(w)
				return source.Entries(cmd.Context(), chosen.filter, func(e timeline.Entry) error {
					if e.Missing {
						return nil
					}
					count++
					return lines.Encode(e)
				})
			})
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(cmd.ErrOrStderr(), "%d entries exported\n", count)
			return err
		}),
	}
	which.addTo(cmd)
	chosen.addTo(cmd, 0)
	cmd.Flags().StringVar(&path, "file", "", "write to a new `FILE` instead of standard output")
	return cmd
}
