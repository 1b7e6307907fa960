package cli

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/auditrelay/auditrelay/internal/control/console"
	"github.com/auditrelay/auditrelay/internal/workspace/streaming"
)

func newStreamingStatus() *cobra.Command {
	return question(&cobra.Command{
		Use:   "status",
		Short: "Show the streaming config of each environment, as the relay last saw it",
		Long: `Shows the streaming config of each environment as the relay last saw it at the API, with its
faults and their remedies. It asks the API nothing. Whether events arrive is not in it: a
config may be ACTIVE, and silent.

FINDING is ok, or one of not_active, differs (mode observe, a dry run, or just seen),
not_taken (set, and another one is shown), refused (the API refuses to set it), absent (no
such environment), fight (others set it again and again) and not seen (the API cannot be
read). MODE is enforce, observe, or - where the configuration desires nothing.

Exit codes: 0 nothing is wrong, 1 the relay cannot be asked, 2 something is wrong, 64 wrong
usage.`,
		Example: `  auditrelay streaming status --config relay.yaml
  auditrelay streaming status --data-dir /var/lib/auditrelay --output json`,
	}, &relayFlags{}, forms("table", "json"), listOf((*console.Client).Streaming), printStreaming, func(list []streaming.Health) error {
		if slices.ContainsFunc(list, func(h streaming.Health) bool { return !h.OK() }) {
			return errTrouble
		}
		return nil
	})
}

func printStreaming(w io.Writer, list []streaming.Health) error {
	return printGrid(w, streamingTable(list), tableWidth(w), toDo(list)...)
}

func streamingTable(list []streaming.Health) *grid {
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
	return g
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
