package app

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/auditrelay/auditrelay/internal/control/admin"
	"github.com/auditrelay/auditrelay/internal/journal/deadletters"
	"github.com/auditrelay/auditrelay/relay"
)

// startLetters opens the dead letters. Those beyond their budget count as undelivered.
func (r *process) startLetters(ctx context.Context) (err error) {
	r.letters, err = deadletters.Open(ctx, deadletters.Options{
		Store: r.store, Quarantine: r.quarantine, Budget: int64(r.cfg().Journal.DeadLetterBytes),
		Logger: r.log, Registerer: r.reg, Sinks: r.sinkNames(),
	})
	if err != nil {
		return err
	}
	r.stack.push("dead letters", func(context.Context) error { return r.letters.Close() })
	r.letters.Beyond(r.journal.HoldBeyond)
	r.admin.AddCheck(admin.Check{Name: "dead letters", Probe: r.lettersRemark})
	return nil
}

// lettersRemark names the environments whose dead letters are close to their budget at a
// sink. Pushes are taken all the while, so it is no reason to send them elsewhere.
func (r *process) lettersRemark(ctx context.Context) (string, error) {
	usage, err := r.letters.Usage(ctx)
	if err != nil {
		return "warning: " + err.Error(), nil //nolint:nilerr // it says so
	}
	var warnings []string
	letters := uint64(0)
	for sink, u := range usage {
		letters += u.Letters
		source, bytes := u.Fullest()
		switch share := float64(bytes) / float64(r.cfg().Journal.DeadLetterBytes); {
		case share >= 1:
			warnings = append(warnings, fmt.Sprintf("the letters of %s at %s take all of their budget; more of them count as undelivered events, "+
				"so its pushes are refused in the end", sourceName(source), sink))
		case share >= warnShare:
			warnings = append(warnings, fmt.Sprintf("the letters of %s at %s take %.1f%% of their budget", sourceName(source), sink, 100*share))
		}
	}
	if len(warnings) > 0 {
		slices.Sort(warnings)
		return "warning: " + strings.Join(warnings, "; ") + "; replay or discard some, see 'auditrelay deadletters --help'", nil
	}
	return fmt.Sprintf("%d", letters), nil
}

// sourceName is a source of events, for people.
func sourceName(source string) string {
	if source == relay.TrailSource {
		return "the audit trail"
	}
	return strings.Replace(strings.TrimPrefix(source, "/projects/"), "/environments/", "/", 1)
}
