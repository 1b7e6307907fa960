package main

import (
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// row is one scenario's outcome.
type row struct {
	name         string
	rounds       int
	acknowledged uint64
	delivered    int64 // distinct events, at the sink that has the fewest
	lost         int64 // acknowledged but missing, at all sinks together
	duplicates   int64 // at all sinks together
	remarks      []string
	wrong        []string // misbehaviour, in words
	skipped      string   // why it was not played to its end, or ""
	took         time.Duration
}

// found reports whether anything was lost or did not behave.
func found(rows []row) bool {
	return slices.ContainsFunc(rows, func(r row) bool { return r.lost > 0 || len(r.wrong) > 0 })
}

func table(rows []row) string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "\nscenario\trounds\tacknowledged\tdelivered\tlost\tduplicates\ttook\tremarks")
	for _, r := range rows {
		if r.skipped != "" {
			fmt.Fprintf(w, "%s\t-\t-\t-\t-\t-\t%.0fs\tSKIPPED: %s\n", r.name, r.took.Seconds(), r.skipped)
			continue
		}
		remarks := r.remarks
		for _, text := range r.wrong {
			remarks = append(remarks, "WRONG: "+text)
		}
		fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%d\t%d\t%.0fs\t%s\n",
			r.name, r.rounds, r.acknowledged, r.delivered, r.lost, r.duplicates, r.took.Seconds(), strings.Join(remarks, "; "))
	}
	_ = w.Flush() // to a strings.Builder
	return b.String()
}
