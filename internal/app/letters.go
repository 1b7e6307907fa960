package app

import (
	"context"
	"fmt"
	"slices"
	"strings"
)

// lettersRemark names the sinks with dead letters close to their budget, where delivery
// waits. Pushes are taken all the while, so it is no reason to send them elsewhere.
func (r *process) lettersRemark(ctx context.Context) (string, error) {
	usage, err := r.letters.Usage(ctx)
	if err != nil {
		return "warning: " + err.Error(), nil //nolint:nilerr // it says so
	}
	var warnings []string
	letters := uint64(0)
	for sink, u := range usage {
		letters += u.Letters
		share := float64(u.Bytes) / float64(r.cfg.Journal.DeadLetterBytes)
		switch {
		case share >= 1:
			warnings = append(warnings, fmt.Sprintf("%s waits: its %d letters take all of their budget", sink, u.Letters))
		case share >= warnShare:
			warnings = append(warnings, fmt.Sprintf("%s has spent %.1f%% of its budget; at 100%% its delivery waits", sink, 100*share))
		}
	}
	if len(warnings) > 0 {
		slices.Sort(warnings)
		return "warning: " + strings.Join(warnings, "; ") + "; replay or discard some, see 'auditrelay deadletters --help'", nil
	}
	return fmt.Sprintf("%d", letters), nil
}
