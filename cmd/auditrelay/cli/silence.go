package cli

import (
	"errors"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/auditrelay/auditrelay/internal/control/console"
	"github.com/auditrelay/auditrelay/internal/health"
)

func newSilenceAdd() *cobra.Command {
	var length time.Duration
	var req console.AddSilence
	return withFlags(question("silence add", &relayFlags{}, forms("table", "json"), func(cmd *cobra.Command, client *console.Client, _ []string) (health.Silence, error) {
		return client.AddSilence(cmd.Context(), req)
	}, func(p *page, added health.Silence) { printSilences(p, []health.Silence{added}) }, takes(func(_ *cobra.Command, args []string) (err error) {
		switch {
		case len(args) != 1:
			return errors.New("give PROJECT/ENVIRONMENT, or all")
		case length < time.Second:
			return errors.New("give --for, a duration such as 30m, 2h or 7d, of at least a second")
		case req.Reason == "":
			return errors.New("give --reason, such as a ticket: the audit trail keeps it")
		}
		req.For = int64(length.Round(time.Second) / time.Second)
		if args[0] != "all" {
			req.Project, req.Environment, err = environmentOf(args[0])
		}
		return err
	})), reasonFlag(&req.Reason), flagFunc(func(flags *pflag.FlagSet) {
		flags.Func("for", "how long: a `DURATION` such as 30m, 2h or 7d", func(text string) (err error) {
			if length, err = lengthOf(text); err != nil {
				err = errors.New("write a number with a unit, such as 30m, 2h or 7d")
			}
			return err
		})
	}))
}

func newSilenceList() *cobra.Command {
	return question("silence list", &relayFlags{}, forms("table", "json"), listOf((*console.Client).Silences), printSilences)
}

func newSilenceEnd() *cobra.Command {
	return question("silence end", &relayFlags{}, forms("table", "json"), func(cmd *cobra.Command, client *console.Client, args []string) (health.Silence, error) {
		return client.EndSilence(cmd.Context(), console.EndSilence{ID: args[0]})
	}, func(p *page, ended health.Silence) {
		p.line("the silence %s of %s is ended", ended.ID, silencedName(ended))
	}, takes(exactly(1, "the ID of one silence, as 'silence list' shows it")))
}

func printSilences(p *page, list []health.Silence) {
	p.row("ID", "ENVIRONMENT", "BEGUN", "UNTIL", "BY", "REASON")
	for _, s := range list {
		p.row(s.ID, silencedName(s), moment(s.Begun), moment(s.Until), printable(s.Person.String()), printable(s.Reason))
	}
}

func silencedName(s health.Silence) string {
	if s.Project == "" {
		return "all"
	}
	return s.Project + "/" + s.Environment
}
