package main

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

// Costs that explain what was measured are found, and none is negative.
func TestCostsAreFitted(t *testing.T) {
	t.Parallel()
	var all []equation
	for _, a := range [][]float64{{1000, 0, 3}, {900, 900, 8}, {1100, 2200, 2}, {700, 1400, 9}} {
		all = append(all, equation{a, 2*a[0] + 0.5*a[1] + 40*a[2]})
	}
	assert.InDeltaSlice(t, []float64{2, 0.5, 40}, fit(all), 1e-6)
	for i := range all {
		all[i].sum = 3*all[i].amounts[0] - all[i].amounts[2]
	}
	costs := fit(all)
	assert.GreaterOrEqual(t, min(costs[0], costs[1], costs[2]), 0.0)
	assert.InDelta(t, 3, costs[0], 0.1)
}
