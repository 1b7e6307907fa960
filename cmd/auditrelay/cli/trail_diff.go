package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/auditrelay/auditrelay/internal/trail/audit"
	"github.com/auditrelay/auditrelay/internal/trail/timeline"
	"github.com/auditrelay/auditrelay/internal/workspace/meaning"
)

func (p Program) newTrailDiff() *cobra.Command {
	which := p.trail()
	output := forms("text", "json")
	cmd := &cobra.Command{
		Use:   "diff INDEX",
		Short: "Show the change of one entry of the audit trail",
		Long: `Shows each difference between an entry's states before and after: a sentence, whether the
setting permits more or less than before, with a witness, and the old and new values.
` + whichTrail + `

Exit codes: 0 shown, 1 it is not there, or failed, 64 wrong usage.`,
		Example: `  auditrelay trail diff 17 --config relay.yaml
  auditrelay trail diff 17 --config relay.yaml --output json`,
		Args: oneIndex,
		RunE: which.asks(func(cmd *cobra.Command, args []string, source trailSource) error {
			e, err := entryOf(cmd, source, args)
			if err != nil {
				return err
			}
			return difference{e.Setting, e.Before, e.After}.print(cmd.OutOrStdout(), output.value)
		}),
	}
	which.addTo(cmd)
	output.addTo(cmd)
	return cmd
}

// difference is two states of a setting.
type difference struct {
	setting       string
	before, after []byte
}

func (d difference) print(w io.Writer, form string) error {
	r, err := meaning.Read(d.setting, d.before, d.after)
	switch {
	case err != nil:
		return fmt.Errorf("compare the states: %w", err)
	case form == "json":
		return printJSON(w, r)
	}
	if len(r.Statements) == 0 {
		_, err := fmt.Fprintln(w, "no difference")
		return err
	}
	var list bytes.Buffer
	printStatements(&list, r.Statements)
	if len(r.Statements) == 1 { // it is the summary
		_, err = w.Write(bytes.TrimPrefix(list.Bytes(), []byte("\n")))
		return err
	}
	_, err = fmt.Fprintf(w, "%s, %s: %s\n%s", r.Severity, r.Direction, printable(r.Summary), list.Bytes())
	return err
}

// printChanges prints an entry's differences, if it has any.
func printChanges(w io.Writer, e timeline.Entry) {
	if len(e.Before) == 0 || timeline.OfReads(e.Type) {
		return
	}
	var told meaning.Reading // as it was signed
	if json.Unmarshal(e.Detail, &told) == nil && len(told.Statements) > 0 {
		printStatements(w, told.Statements)
	} else if r, err := meaning.Read(e.Setting, e.Before, e.After); err == nil {
		printStatements(w, r.Statements)
	}
}

func printStatements(w io.Writer, list []meaning.Statement) {
	for _, s := range list {
		_, _ = fmt.Fprintf(w, "\n%s, %s: %s\n", s.Severity, s.Direction, printable(s.Sentence))
		_, _ = fmt.Fprintf(w, "  at   %q\n", s.Path)
		for _, value := range []struct {
			name string
			json []byte
		}{{"old", s.Old}, {"new", s.New}} {
			if len(value.json) > 0 {
				_, _ = fmt.Fprintf(w, "  %s  %s\n", value.name, short(string(value.json)))
			}
		}
		for line := range strings.Lines(s.Diff) {
			_, _ = fmt.Fprintf(w, "    %s\n", printable(strings.TrimSuffix(line, "\n")))
		}
		if s.Witness != "" {
			_, _ = fmt.Fprintf(w, "  so   %s\n", printable(s.Witness))
		}
	}
}

func windowText(w audit.Window) string {
	return fmt.Sprintf("after %s, and by %s", moment(w.After), moment(w.Until))
}
