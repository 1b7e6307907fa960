package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/auditrelay/auditrelay/internal/trail/timeline"
	"github.com/auditrelay/auditrelay/internal/workspace/meaning"
)

func (p Program) newTrailShow() *cobra.Command {
	return question("trail show", p.trail(), forms("text", "json"), entryOf, showEntry, takes(oneIndex))
}

func showEntry(p *page, e timeline.Entry) {
	p.field("entry", strconv.FormatInt(e.Index, 10))
	p.field("what", e.Summary)
	p.field("severity", e.Severity)
	p.field("direction", e.Direction)
	p.field("cause", e.Cause)
	p.field("who", e.Actor)
	p.field("type", e.Type)
	p.field("setting", e.Setting)
	p.field("environment", placeOf(e.Project, e.Environment))
	p.field("time", moment(e.Time))
	if e.Window != nil {
		p.field("happened", fmt.Sprintf("after %s, and by %s", moment(e.Window.After), moment(e.Window.Until)))
	}
	p.field("leaf", e.Leaf)
	p.field("undo", e.Undo())
	if e.Unsound {
		p.field("DAMAGED", "this entry is unlike the signed one: it proves nothing; 'auditrelay journal verify' says more")
	}
	for _, r := range e.Reviews {
		p.field("reviewed", reviewText(r))
	}
	p.statements(e.Statements())
	for _, part := range []struct {
		name string
		json json.RawMessage
	}{{"before", e.Before}, {"after", e.After}, {"detail", e.Detail}} {
		if len(part.json) > 0 {
			p.line("\n%s:\n%s", part.name, indented(part.json))
		}
	}
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
		text += "; entered by " + r.String()
	}
	if r.Differs {
		text += " (WARNING: that was another entry: the leaf differs)"
	}
	return text
}

func (p Program) newTrailDiff() *cobra.Command {
	output := forms("text", "json")
	return command("trail diff", p.trail(), func(cmd *cobra.Command, args []string, source trailSource) error {
		e, err := entryOf(cmd, source, args)
		if err != nil {
			return err
		}
		return difference{e.Setting, e.Before, e.After}.print(cmd.OutOrStdout(), output.isJSON())
	}, &output, takes(oneIndex))
}

// difference is two states of a setting.
type difference struct {
	setting       string
	before, after []byte
}

func (d difference) print(w io.Writer, asJSON bool) error {
	r, err := meaning.Read(d.setting, d.before, d.after)
	if err != nil {
		return fmt.Errorf("compare the states: %w", err)
	}
	return printAs(w, asJSON, r, func(p *page, r meaning.Reading) {
		switch len(r.Statements) {
		case 0:
			p.line("no difference")
		case 1: // it is the summary
			p.statement(r.Statements[0])
		default:
			p.line("%s, %s: %s", r.Severity, r.Direction, printable(r.Summary))
			p.statements(r.Statements)
		}
	})
}

func (p *page) statements(list []meaning.Statement) {
	for _, s := range list {
		p.line("")
		p.statement(s)
	}
}

func (p *page) statement(s meaning.Statement) {
	p.line("%s, %s: %s", s.Severity, s.Direction, printable(s.Sentence))
	p.line("  at   %q", s.Path)
	if len(s.Old) > 0 {
		p.line("  old  %s", short(string(s.Old)))
	}
	if len(s.New) > 0 {
		p.line("  new  %s", short(string(s.New)))
	}
	for line := range strings.Lines(s.Diff) {
		p.line("    %s", printable(strings.TrimSuffix(line, "\n")))
	}
	if s.Witness != "" {
		p.line("  so   %s", printable(s.Witness))
	}
}
