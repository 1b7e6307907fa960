package cli

import (
	"fmt"
	"io"
	"strings"

	"github.com/auditrelay/auditrelay/internal/trail/verify"
)

// mostShownApart bounds the imitations shown to a person; --output json has more of them.
const mostShownApart = 10

// printVerdicts prints the report for a person.
func printVerdicts(w io.Writer, r verify.Report) error {
	var b strings.Builder
	for _, l := range r.Logs {
		if l.Size == 0 {
			fmt.Fprintf(&b, "log %s: no entry is under a signed root\n", printable(l.Origin))
			continue
		}
		fmt.Fprintf(&b, "log %s: entries %d to %d, root %s", printable(l.Origin), l.Base, l.Base+l.Size-1, l.Root)
		if !l.Signed.IsZero() {
			fmt.Fprintf(&b, ", signed at %s", moment(l.Signed))
		}
		if len(l.Witnesses) > 0 {
			fmt.Fprintf(&b, ", cosigned by %s", printable(strings.Join(l.Witnesses, ", ")))
		}
		b.WriteString("\n")
	}
	switch {
	case r.Entries == 0 && len(r.Integrity.Findings) == 0:
		b.WriteString("integrity: NOT SHOWN: nothing was checked, as no entry is under a signed root\n")
	case r.Trusted:
		printVerdict(&b, "integrity", r.Integrity, "every entry is the signed one", "BROKEN")
	default:
		printVerdict(&b, "integrity", r.Integrity, "the files agree with each other", "BROKEN")
	}
	printVerdict(&b, "completeness", r.Completeness, "no gap", "NOT SHOWN")
	fmt.Fprintf(&b, "%d entries and %d checkpoints were checked\n", r.Entries, r.Checkpoints)
	for _, a := range r.Archived {
		fmt.Fprintf(&b, "%d entries are archived, and were checked by their hashes only: %d to %d, moved to %s; --archive DIR checks them whole\n", a.To-a.From+1, a.From, a.To, printable(a.Where))
	}
	for _, found := range r.Settled {
		fmt.Fprintf(&b, "settled: %s\n", printable(found.String()))
	}
	if r.Apart.Events > 0 {
		fmt.Fprintf(&b, "%d events look like the trail's and are none of it: they count for nothing, and against nothing\n", r.Apart.Events)
		for _, found := range r.Apart.Findings[:min(len(r.Apart.Findings), mostShownApart)] {
			fmt.Fprintf(&b, "  %s\n", printable(found.String()))
		}
	}
	if !r.Trusted {
		b.WriteString("NOTHING IS PROVEN except that the files agree with each other: without --key or --policy, no signature was checked,\n" +
			"and whoever can write the files could have made all of them.\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func printVerdict(b *strings.Builder, name string, v verify.Verdict, good, bad string) {
	if v.Holds {
		fmt.Fprintf(b, "%s: holds: %s\n", name, good)
		return
	}
	fmt.Fprintf(b, "%s: %s: %d findings\n", name, bad, int64(len(v.Findings))+v.More)
	for _, found := range v.Findings {
		fmt.Fprintf(b, "  %s\n", printable(found.String()))
	}
	if v.More > 0 {
		fmt.Fprintf(b, "  and %d more\n", v.More)
	}
}
