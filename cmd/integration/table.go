package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/auditrelay/auditrelay/internal/testbed/workspacesim"
)

// row is one destination in one run.
type row struct {
	name, run    string
	acknowledged uint64 // events answered with a 2xx by the relay
	arrived      int64  // distinct events read back
	lost         int64  // acknowledged, and not there
	duplicates   int64
	took         time.Duration
	remarks      []string
	wrong        []string // misbehaviour, in words
	skipped      string   // why it was not played, or ""
}

// found reports whether anything was lost or did not behave.
func found(rows []row) bool {
	return slices.ContainsFunc(rows, func(r row) bool { return r.lost > 0 || len(r.wrong) > 0 })
}

func table(rows []row) string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "\ndestination\trun\tacknowledged\tarrived\tlost\tduplicates\ttook\tremarks")
	for _, r := range rows {
		if r.skipped != "" {
			fmt.Fprintf(w, "%s\t-\t-\t-\t-\t-\t-\tSKIPPED: %s\n", r.name, r.skipped)
			continue
		}
		remarks := slices.Clone(r.remarks)
		for _, text := range r.wrong {
			remarks = append(remarks, "WRONG: "+firstLine(text))
		}
		fmt.Fprintf(w, "%s\t%s\t%d\t%d\t%d\t%d\t%.0fs\t%s\n",
			r.name, r.run, r.acknowledged, r.arrived, r.lost, r.duplicates, r.took.Seconds(), strings.Join(remarks, "; "))
	}
	_ = w.Flush() // to a strings.Builder
	return b.String()
}

// firstLine fits into a table: the rest was printed when it happened.
func firstLine(text string) string {
	const most = 200
	line, _, _ := strings.Cut(text, "\n")
	if len(line) > most {
		line = strings.ToValidUTF8(line[:most], "") + "…"
	}
	return line
}

// tallyOf reads a target and counts the events of the ledgers; events of other runs, and the
// relay's own, are not counted.
func tallyOf(ctx context.Context, t target, ledgers []workspacesim.Ledger) (tally workspacesim.Tally, err error) {
	ours := map[string]bool{}
	for _, l := range ledgers {
		ours[l.Prefix] = true
	}
	err = t.read(ctx, func(id string) {
		if prefix, _, ok := workspacesim.ParseEventID(id); ok && ours[prefix] {
			tally.Add(id)
		}
	})
	return tally, err
}

// count fills in the ledgers and the tally.
func (r *row) count(tally workspacesim.Tally, ledgers []workspacesim.Ledger) {
	r.acknowledged = 0
	refused := uint64(0)
	for _, l := range ledgers {
		r.acknowledged += l.Counts.Acknowledged
		refused += l.Counts.Dropped
	}
	r.arrived, r.duplicates, r.lost = tally.Unique, tally.Duplicates, tally.Missing(ledgers)
	if r.acknowledged == 0 {
		r.wrong = append(r.wrong, "nothing was acknowledged, so that nothing was shown")
	}
	if refused > 0 {
		r.wrong = append(r.wrong, fmt.Sprintf("%d events were refused for good", refused))
	}
}
