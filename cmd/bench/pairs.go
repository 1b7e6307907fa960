package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
)

// pair is one row measured with both binaries, one right after the other.
type pair struct{ this, other result }

// pairs measures the chosen rows with both binaries in turn. The first one changes with
// each pair, so neither gains from a slowing machine.
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

// pairsTable gives, for each row and figure, the medians of both binaries, and the
// median, the smallest and the largest ratio of a pair.
func pairsTable(all [][]pair) string {
	figures := []struct {
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
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "work\tpairs\tfigure\tother\tthis\tratio\tsmallest\tlargest\t")
	for _, pairs := range all {
		for _, f := range figures {
			c := compare(pairs, f.of)
			fmt.Fprintf(w, "%s\t%d\t%s\t%.5g\t%.5g\t%.3f\t%.3f\t%.3f\t\n", pairs[0].this.name, len(pairs), f.name, c.other, c.this, c.ratio, c.smallest, c.largest)
		}
	}
	_ = w.Flush() // to a strings.Builder
	return b.String()
}

type comparison struct{ this, other, ratio, smallest, largest float64 }

// compare compares one figure over all pairs. A ratio is this binary's figure over the
// other's, in one pair: a slow stretch of the machine cancels out.
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
