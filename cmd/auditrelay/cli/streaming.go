package cli

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/auditrelay/auditrelay/internal/control/console"
	"github.com/auditrelay/auditrelay/internal/workspace/streaming"
)

func newStreamingStatus() *cobra.Command {
	return question("streaming status", &relayFlags{}, forms("table", "json"), func(cmd *cobra.Command, client *console.Client, _ []string) (list []streaming.Health, err error) {
		if list, err = client.Streaming(cmd.Context()); err == nil {
			err = errTrouble.when(slices.ContainsFunc(list, func(h streaming.Health) bool { return !h.OK() }))
		}
		return list, err
	}, printStreaming)
}

func printStreaming(p *page, list []streaming.Health) {
	g := &grid{columns: []column{
		{title: "ENVIRONMENT", flex: true},
		{title: "MODE", rank: 2},
		{title: "STREAMS TO"},
		{title: "STATUS"},
		{title: "FINDING", rank: 1},
		{title: "SEEN", rank: 3},
		{title: "CHANGED", rank: 4},
	}}
	for _, h := range list {
		mode := h.Mode
		if h.Observed {
			mode = "-"
		}
		to := strings.TrimSpace(string(h.DestinationType) + " " + h.Destination)
		g.add(nil, plainCells(h.Project+"/"+h.Environment, mode, cmp.Or(to, "-"), cmp.Or(string(h.Status), "-"), findingOf(h), moment(h.LastLook), moment(h.LastChange))...)
	}
	p.grid(g, toDo(list)...)
}

func findingOf(h streaming.Health) string {
	switch {
	case h.Fight != nil:
		return "fight"
	case h.Finding != streaming.FindingNone && len(h.Differs) > 0:
		return string(h.Finding) + ": " + strings.Join(h.Differs, ", ")
	case h.Finding != streaming.FindingNone:
		return string(h.Finding)
	case !h.OK():
		return "not seen"
	}
	return "ok"
}

// toDo is advice for a person. A failure of several environments is said once.
func toDo(list []streaming.Health) (all []string) {
	failed := map[string]int{} // environments by the error of their last look
	for _, h := range list {
		switch {
		case h.Fight != nil:
			all = append(all, "to do: "+endFight(h))
		case h.Advice != "":
			all = append(all, "to do: "+h.Advice)
		case h.LastError != "":
			failed[h.LastError]++
		}
	}
	for _, text := range slices.Sorted(maps.Keys(failed)) {
		all = append(all, fmt.Sprintf("not seen, %d: %s", failed[text], text))
	}
	return all
}

func endFight(h streaming.Health) string {
	text := fmt.Sprintf("find out who has undone the relay's config of %s/%s %d times in a row since %s, another relay perhaps",
		h.Project, h.Environment, h.Fight.Undone, moment(h.Fight.Since))
	if !h.Fight.NextPut.IsZero() {
		text += "; the relay sets it again at " + moment(h.Fight.NextPut)
	}
	return text
}

func newStreamingPlan() *cobra.Command {
	output := forms("table", "json")
	var of console.OfEnvironment
	return command("streaming plan", &relayFlags{}, func(cmd *cobra.Command, _ []string, client *console.Client) error {
		return planned(cmd, client, of, output.value)
	}, &output, takes(func(_ *cobra.Command, args []string) (err error) {
		if len(args) > 1 {
			return fmt.Errorf("give one PROJECT/ENVIRONMENT, or none for all")
		}
		if len(args) == 1 {
			of.Project, of.Environment, err = environmentOf(args[0])
		}
		return err
	}))
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
		return show(cmd.OutOrStdout(), p, printPlanned)
	})
	switch {
	case err != nil:
	case form == "json":
		err = printJSON(cmd.OutOrStdout(), all)
	case of.Project == "":
		err = say(cmd.OutOrStdout(), "would change: %d, as desired: %d, not compared: %d", due, total-due-failed, failed)
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

func printPlanned(p *page, one console.Planned) {
	if one.Preview == nil {
		p.line("%s/%s: cannot be compared: %s", one.Project, one.Environment, printable(one.Error))
		return
	}
	printPreview(p, *one.Preview)
}

// printPreview shows the actual and the desired config. A * marks each difference.
func printPreview(p *page, v streaming.Preview) {
	verdict := "as desired"
	if v.Differs {
		verdict = "would change"
	}
	p.line("%s/%s: %s (mode %s, status %s)", v.Project, v.Environment, verdict, v.Mode, cmp.Or(printable(string(v.Status)), "none"))
	p.row("    FIELD", "IS", "WOULD BE")
	for _, f := range v.Fields {
		mark := " "
		if f.Differs {
			mark = "*"
		}
		p.row("  "+mark+" "+f.Name, cmp.Or(printable(f.Is), "-"), cmp.Or(printable(f.WouldBe), "-"))
	}
	// Whoever reads a plan need not be told to make one.
	if v.Advice != "" && v.Finding != streaming.FindingDiffers {
		p.line("  to do: %s", printable(v.Advice))
	}
}

func newStreamingApply() *cobra.Command {
	var consent consentFlags
	var of console.OfEnvironment
	return question("streaming apply", &relayFlags{}, forms("table", "json"), func(cmd *cobra.Command, client *console.Client, _ []string) (done streaming.Preview, err error) {
		of.Reason = consent.reason
		if err := askToApply(cmd, client, of, consent.yes); err != nil {
			return done, err
		}
		if done, err = client.ApplyStreaming(cmd.Context(), of); err == nil {
			err = errTrouble.when(done.Differs || done.Finding != streaming.FindingNone)
		}
		return done, err
	}, func(p *page, done streaming.Preview) {
		p.line("the streaming config of %s/%s is set", done.Project, done.Environment)
		printPreview(p, done)
	}, &consent, takes(ofEnvironment(&of, exactly(1, "PROJECT/ENVIRONMENT"))))
}

// askToApply shows the plan on standard error, and asks.
func askToApply(cmd *cobra.Command, client *console.Client, of console.OfEnvironment, yes bool) error {
	question := "Set it?"
	err := client.PlanStreaming(cmd.Context(), of, func(p console.Planned) error {
		if p.Preview == nil {
			return errors.New(p.Error)
		}
		if !p.Preview.Differs {
			question = "Nothing seems to differ. Set it all the same?"
		}
		return show(cmd.ErrOrStderr(), *p.Preview, printPreview)
	})
	if err != nil {
		return err
	}
	return confirm(cmd, yes, question)
}
