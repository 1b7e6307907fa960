package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestCompare(t *testing.T) {
	t.Parallel()
	of := func(this, other float64) pair {
		return pair{this: result{cpuPerMillion: this}, other: result{cpuPerMillion: other}}
	}
	cpu := func(r result) float64 { return r.cpuPerMillion }
	// One pair ran while the machine was busy with something else.
	c := compare([]pair{of(4, 5), of(30, 60), of(3.5, 5)}, cpu)
	assert.Equal(t, comparison{this: 4, other: 5, ratio: 0.7, smallest: 0.5, largest: 0.8}, c)
	assert.InDelta(t, 3.5, compare([]pair{of(4, 1), of(3, 1)}, cpu).this, 0)
}

func TestPairsTable(t *testing.T) {
	t.Parallel()
	of := func(cpu, rate float64) result {
		return result{row: row{name: "json x100"}, cpuPerMillion: cpu, accepted: rate}
	}
	table := pairsTable([][]pair{{{this: of(4, 241_600), other: of(5, 120_800)}}})
	lines := strings.Split(table, "\n")
	assert.Equal(t, "| work (pairs) | CPU-s/M | accepted/s | end to end/s | p50 ms | p99 ms | RSS MB | commits/event |", lines[0])
	assert.Contains(t, lines[2], "| json x100 (1) | 5 → 4, × 0.80 (0.80 to 0.80) | 120800 → 241600, × 2.00 (2.00 to 2.00) |")
}

func TestChosen(t *testing.T) {
	t.Parallel()
	names := func(text string) (all []string) {
		for _, r := range chosen(rows(), text) {
			all = append(all, r.name)
		}
		return all
	}
	assert.Equal(t, []string{"json x100"}, names("^json x100$"))
	assert.Equal(t, []string{"json x100", "json x100, half load"}, names("half"), "a share is one of the first row's rate")
	assert.Len(t, names(""), len(rows()))
}
