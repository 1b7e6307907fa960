package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// pair is one row measured with both binaries, one right after the other.
type pair struct{ this, other result }

// pairs measures the chosen rows with both binaries in turn. The first one changes with each
// pair, so that neither gains when the machine becomes slower.
func (b *bench) pairs(ctx context.Context) ([][]pair, error) {
	var all [][]pair
	for i, r := range chosen(rows(), b.only) {
		r = b.sized(r)
		var of []pair
		for n := range b.count {
			p, err := b.pair(ctx, r, filepath.Join(b.dir, fmt.Sprintf("%d-%d", i, n)), n%2 == 1)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", r.name, err)
			}
			fmt.Fprintf(os.Stderr, "%s, pair %d of %d: %.2f against %.2f CPU-s/M\n", r.name, n+1, b.count, p.this.cpuPerMillion, p.other.cpuPerMillion)
			of = append(of, p)
		}
		all = append(all, of)
	}
	return all, nil
}

func (b *bench) pair(ctx context.Context, r row, dir string, otherFirst bool) (p pair, err error) {
	run := func(binary, name string, into *result) error {
		r.binary = binary
		r.rate = r.share * b.first.accepted
		res, err := b.measure(ctx, r, filepath.Join(dir, name))
		if err != nil {
			return fmt.Errorf("%s: %w", binary, err)
		}
		if b.first.accepted == 0 {
			b.first = res
		}
		*into = res
		return os.RemoveAll(filepath.Join(dir, name))
	}
	this := func() error { return run(b.binary, "this", &p.this) }
	other := func() error { return run(b.against, "other", &p.other) }
	if otherFirst {
		this, other = other, this
	}
	if err := this(); err != nil {
		return p, err
	}
	return p, other()
}

// figures are the columns of a table of pairs.
var figures = []struct {
	name string
	of   func(result) float64
}{
	{"CPU-s/M", func(r result) float64 { return r.cpuPerMillion }},
	{"accepted/s", func(r result) float64 { return r.accepted }},
	{"end to end/s", func(r result) float64 { return r.delivered }},
	{"p50 ms", func(r result) float64 { return r.p50 }},
	{"p99 ms", func(r result) float64 { return r.p99 }},
	{"RSS MB", func(r result) float64 { return r.rss }},
	{"commits/event", func(r result) float64 { return r.commitsPerEvent }},
}

// pairsTable is a Markdown table of the rows. For each figure it has the medians of both
// binaries, and the median, the smallest and the largest ratio of a pair.
func pairsTable(all [][]pair) string {
	var b strings.Builder
	b.WriteString("| work (pairs) |")
	for _, f := range figures {
		fmt.Fprintf(&b, " %s |", f.name)
	}
	b.WriteString("\n|---|" + strings.Repeat("---|", len(figures)) + "\n")
	for _, pairs := range all {
		fmt.Fprintf(&b, "| %s (%d) |", pairs[0].this.name, len(pairs))
		for _, f := range figures {
			c := compare(pairs, f.of)
			fmt.Fprintf(&b, " %s → %s, × %.2f (%.2f to %.2f) |", short(c.other), short(c.this), c.ratio, c.smallest, c.largest)
		}
		b.WriteString("\n")
	}
	return b.String()
}

// short formats with three digits, or with all that are before the point.
func short(v float64) string {
	if v >= 1000 {
		return fmt.Sprintf("%.0f", v)
	}
	return fmt.Sprintf("%.3g", v)
}

type comparison struct{ this, other, ratio, smallest, largest float64 }

// compare compares one figure over all pairs. A ratio is this binary's figure over the other's,
// in one pair, so that a slow period of the machine cancels out.
func compare(pairs []pair, figure func(result) float64) (c comparison) {
	var this, other, ratios []float64
	for _, p := range pairs {
		a, b := figure(p.this), figure(p.other)
		this, other, ratios = append(this, a), append(other, b), append(ratios, a/b)
	}
	c.this, c.other = median(this), median(other)
	c.ratio, c.smallest, c.largest = median(ratios), slices.Min(ratios), slices.Max(ratios)
	return c
}

// median is the middle value, or the mean of the two in the middle.
func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	n := len(sorted)
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}

// pairsVerdict is an error where either binary lost an event.
func pairsVerdict(all [][]pair) error {
	for _, pairs := range all {
		for _, p := range pairs {
			if err := verdict([]result{p.this, p.other}); err != nil {
				return err
			}
		}
	}
	return nil
}
