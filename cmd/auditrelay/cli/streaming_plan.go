package cli

import (
	"cmp"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/auditrelay/auditrelay/internal/control/console"
	"github.com/auditrelay/auditrelay/internal/workspace/streaming"
)

func newStreamingPlan() *cobra.Command {
	output := forms("table", "json")
	var of console.OfEnvironment
	return command(&cobra.Command{
		Use:   "plan [PROJECT/ENVIRONMENT]",
		Short: "Compare the streaming config with the desired one, field by field",
		Long: `Reads the streaming config of an environment, or of each one with a desired config, from the
API, and shows each field as it is and as it would be. It changes nothing, and enters
nothing in the audit trail. In mode observe and in a dry run it works likewise.

Of a secret, only the last four characters are known: a secret changed by hand to one with
the same ending is not seen here. 'apply' replaces it all the same.

Exit codes: 0 nothing to do, 1 an environment cannot be compared, 2 something would change,
64 wrong usage.`,
		Example: `  auditrelay streaming plan --config relay.yaml
  auditrelay streaming plan shop/live --config relay.yaml --output json`,
		Args: func(_ *cobra.Command, args []string) (err error) {
			if len(args) > 1 {
				return fmt.Errorf("give one PROJECT/ENVIRONMENT, or none for all")
			}
			if len(args) == 1 {
				of, err = environmentOf(args[0])
			}
			return err
		},
	}, &relayFlags{}, func(cmd *cobra.Command, _ []string, client *console.Client) error {
		return planned(cmd, client, of, output.value)
	}, &output)
}

// planned prints plans, and ends with the error of the worst.
func planned(cmd *cobra.Command, client *console.Client, of console.OfEnvironment, form string) error {
	all := []console.Planned{}
	total, due, failed := 0, 0, 0
	err := client.PlanStreaming(cmd.Context(), of, func(p console.Planned) error {
		total++
		switch {
		case p.Preview == nil:
			failed++
		case p.Preview.Differs:
			due++
		}
		if form == "json" {
			all = append(all, p)
			return nil
		}
		return printPlanned(cmd.OutOrStdout(), p)
	})
	switch {
	case err != nil:
	case form == "json":
		err = printJSON(cmd.OutOrStdout(), all)
	case of.Project == "":
		_, err = fmt.Fprintf(cmd.OutOrStdout(), "would change: %d, as desired: %d, not compared: %d\n", due, total-due-failed, failed)
	}
	switch {
	case err != nil:
		return err
	case failed > 0:
		return errReported
	case due > 0:
		return errTrouble
	}
	return nil
}

func printPlanned(w io.Writer, p console.Planned) error {
	if p.Preview == nil {
		_, err := fmt.Fprintf(w, "%s/%s: cannot be compared: %s\n", p.Project, p.Environment, printable(p.Error))
		return err
	}
	return printPreview(w, *p.Preview)
}

// printPreview shows the actual and the desired config. A * marks each difference.
func printPreview(w io.Writer, p streaming.Preview) error {
	verdict := "as desired"
	if p.Differs {
		verdict = "would change"
	}
	_, err := fmt.Fprintf(w, "%s/%s: %s (mode %s, status %s)\n", p.Project, p.Environment, verdict, p.Mode, cmp.Or(printable(string(p.Status)), "none"))
	out := newTable(w, "    FIELD", "IS", "WOULD BE")
	for _, f := range p.Fields {
		mark := " "
		if f.Differs {
			mark = "*"
		}
		out.row("  "+mark+" "+f.Name, cmp.Or(printable(f.Is), "-"), cmp.Or(printable(f.WouldBe), "-"))
	}
	if err == nil {
		err = out.Flush()
	}
	// Whoever reads a plan need not be told to make one.
	if p.Advice != "" && p.Finding != streaming.FindingDiffers && err == nil {
		_, err = fmt.Fprintf(w, "  to do: %s\n", printable(p.Advice))
	}
	return err
}
