package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/auditrelay/auditrelay/internal/trail/timeline"
	"github.com/auditrelay/auditrelay/internal/workspace"
)

func (p Program) newTrailShow() *cobra.Command {
	return question(&cobra.Command{
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
	}, p.trail(), forms("text", "json"), entryOf, showEntry)
}

func showEntry(w io.Writer, e timeline.Entry) error {
	out := newTable(w)
	out.field("entry", strconv.FormatInt(e.Index, 10))
	out.field("what", e.Summary)
	out.field("severity", e.Severity)
	out.field("direction", e.Direction)
	out.field("cause", e.Cause)
	out.field("who", whoText(e.Actor, ""))
	out.field("type", e.Type)
	out.field("setting", e.Setting)
	out.field("environment", placeOf(e.Project, e.Environment))
	out.field("time", moment(e.Time))
	if e.Window != nil {
		out.field("happened", windowText(*e.Window))
	}
	out.field("leaf", e.Leaf)
	out.field("undo", undoOf(e))
	if e.Unsound {
		out.field("DAMAGED", "this entry is unlike the signed one: it proves nothing; 'auditrelay journal verify' says more")
	}
	for _, r := range e.Reviews {
		out.field("reviewed", reviewText(r))
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
