package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/auditrelay/auditrelay/internal/timeline"
	"github.com/auditrelay/auditrelay/internal/workspace"
)

func (p Program) newTrailShow() *cobra.Command {
	which := trailFlags{kinds: p.Kinds.Config()}
	var output outputFlag
	cmd := &cobra.Command{
		Use:   "show INDEX",
		Short: "Show one entry of the audit trail, whole",
		Long: `Shows one entry: the change, in sentences; its window of time; its reviewers; and the states
before and after. The entry is read from the trail itself. Its leaf is the hash under the
signed checkpoints.
` + whichTrail + `

Exit codes: 0 shown, 1 it is not there, or failed, 64 wrong usage.`,
		Example: `  auditrelay trail show 17 --config relay.yaml
  auditrelay trail show 17 --config relay.yaml --output json | jq .after`,
		Args: oneIndex,
		RunE: which.reads(func(cmd *cobra.Command, args []string, source trailSource) error {
			e, err := entryOf(cmd, source, args[0])
			if err != nil {
				return err
			}
			return printAs(cmd.OutOrStdout(), output.value == "json", e, showEntry)
		}),
	}
	which.addTo(cmd)
	addOutputFlag(cmd, &output, "text", "json")
	return cmd
}

func showEntry(w io.Writer, e timeline.Entry) error {
	out := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	field := func(name, value string) {
		if value != "" {
			_, _ = fmt.Fprintf(out, "%s\t%s\n", name, printable(value))
		}
	}
	field("entry", strconv.FormatInt(e.Index, 10))
	field("what", e.Summary)
	field("severity", e.Severity)
	field("direction", e.Direction)
	field("cause", e.Cause)
	field("who", whoText(e.Actor, ""))
	field("type", e.Type)
	field("setting", e.Setting)
	field("environment", placeOf(e.Project, e.Environment))
	field("time", moment(e.Time))
	if e.Window != nil {
		field("happened", windowText(*e.Window))
	}
	field("leaf", e.Leaf)
	field("undo", undoOf(e))
	if e.Unsound {
		field("DAMAGED", "this entry is unlike the signed one: it proves nothing; 'auditrelay journal verify' says more")
	}
	for _, r := range e.Reviews {
		field("reviewed", reviewText(r))
	}
	if err := out.Flush(); err != nil {
		return err
	}
	printChanges(w, e)
	for name, state := range statesOf(e) {
		_, _ = fmt.Fprintf(w, "\n%s:\n%s\n", name, indented(state))
	}
	return nil
}

func reviewText(r timeline.Review) string {
	text := fmt.Sprintf("by %s, %s, entry %d", r.Reviewer, moment(r.Time), r.Entry)
	if r.Ticket != "" {
		text += ", ticket " + r.Ticket
	}
	if r.Note != "" {
		text += ": " + r.Note
	}
	if r.User != "" {
		text += "; entered by " + workspace.Person{User: r.User, Host: r.Host, Claimed: r.Claimed}.String()
	}
	if r.Differs {
		text += " (WARNING: that was another entry: the leaf differs)"
	}
	return text
}

// statesOf are the JSON parts of an entry, in order.
func statesOf(e timeline.Entry) func(yield func(string, json.RawMessage) bool) {
	return func(yield func(string, json.RawMessage) bool) {
		for _, part := range []struct {
			name string
			json json.RawMessage
		}{{"before", e.Before}, {"after", e.After}, {"detail", e.Detail}} {
			if len(part.json) > 0 && !yield(part.name, part.json) {
				return
			}
		}
	}
}
