package main

import "math"

// equation says that costs times amounts are a sum.
type equation struct {
	amounts []float64
	sum     float64
}

// fit finds the costs with the least squares of the relative errors. A cost that would be negative
// is 0.
func fit(all []equation) []float64 {
	n := len(all[0].amounts)
	without := make([]bool, n)
	for {
		costs := solve(normal(all, without))
		least := 0
		for i := range costs {
			if costs[i] < costs[least] {
				least = i
			}
		}
		if costs[least] >= 0 {
			return costs
		}
		without[least] = true
	}
}

// normal are the normal equations, with a last column of the sums. A cost without part is 0.
func normal(all []equation, without []bool) [][]float64 {
	n := len(without)
	rows := make([][]float64, n)
	for i := range rows {
		rows[i] = make([]float64, n+1)
		if without[i] {
			rows[i][i] = 1
			continue
		}
		for _, e := range all {
			for k := range n {
				if !without[k] {
					rows[i][k] += e.amounts[i] * e.amounts[k] / (e.sum * e.sum)
				}
			}
			rows[i][n] += e.amounts[i] / e.sum
		}
	}
	return rows
}

// solve eliminates, the largest first. An unknown that nothing tells of is 0.
func solve(rows [][]float64) []float64 {
	n := len(rows)
	for i := range n {
		for k := i + 1; k < n; k++ {
			if math.Abs(rows[k][i]) > math.Abs(rows[i][i]) {
				rows[i], rows[k] = rows[k], rows[i]
			}
		}
		for k := range n {
			if k == i || rows[i][i] == 0 {
				continue
			}
			by := rows[k][i] / rows[i][i]
			for c := i; c <= n; c++ {
				rows[k][c] -= by * rows[i][c]
			}
		}
	}
	costs := make([]float64, n)
	for i := range costs {
		if rows[i][i] != 0 {
			costs[i] = rows[i][n] / rows[i][i]
		}
	}
	return costs
}
