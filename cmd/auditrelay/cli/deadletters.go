package cli

import (
	"github.com/spf13/cobra"

	"github.com/auditrelay/auditrelay/internal/journal/deadletters"
)

func newDeadletters() *cobra.Command {
	return under(&cobra.Command{
		Use:     "deadletters",
		Aliases: []string{"deadletter", "dl"},
		Short:   "List the events a sink refused for good, and deliver them again",
		Long: `When a sink refuses an event for good, the event goes to the dead letters with the
sink's reason, and the events behind it go on. There it stays until you replay or
discard it. list prints no bodies, for they may hold personal data; show and export do.

Mend the cause first (the reason names it), then replay.`,
		Example: `  auditrelay deadletters list --config relay.yaml --sink kafka --since 24h
  auditrelay deadletters show 17 --config relay.yaml
  auditrelay deadletters replay --config relay.yaml --sink kafka --reason "too large"`,
	}, newDeadlettersList(), newDeadlettersShow(), newDeadlettersReplay(), newDeadlettersExport(), newDeadlettersDiscard())
}

// letterFlags choose dead letters.
type letterFlags struct {
	filter       deadletters.Filter
	since, until timeFlag
}

func (f *letterFlags) addTo(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.filter.Sink, "sink", "", "only those of the sink `NAME`")
	flags.Var(&f.since, "since", "only those refused at or after `TIME`: RFC 3339, or how long ago (2h)")
	flags.Var(&f.until, "until", "only those refused before `TIME`: RFC 3339, or how long ago (2h)")
	flags.StringVar(&f.filter.Reason, "reason", "", "only those whose reason holds `TEXT`, in any case")
	flags.StringVar(&f.filter.ID, "id", "", "only those of the event `ID`")
	flags.StringVar(&f.filter.Project, "project", "", "only those of the project `SLUG`")
	flags.StringVar(&f.filter.Environment, "environment", "", "only those of the environment `SLUG`")
	flags.IntVar(&f.filter.Limit, "limit", 0, "no more than `N`, the oldest first (0: all)")
}

func (f *letterFlags) get() deadletters.Filter {
	f.filter.Since, f.filter.Until = f.since.time, f.until.time
	return f.filter
}
