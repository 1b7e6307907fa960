package health

import "math"

// tail holds the weights of gaps between pushes, by factors of 2^(1/8), in the last
// weeks: after four of them a gap counts half.
type tail struct {
	Counts [tailBuckets]float64 `json:"counts"` // the first holds all below 1
	Weight float64              `json:"weight"` // of all gaps together
}

const (
	perDouble   = 8
	tailBuckets = 1 + 30*perDouble
	tailHalf    = 4 * hours // watched hours
)

// add counts a gap.
func (t *tail) add(weight float64) {
	t.count(weight)
	t.Weight += weight
}

func (t *tail) count(weight float64) {
	i := 0
	if weight >= 1 {
		i = min(1+int(perDouble*math.Log2(weight)), tailBuckets-1)
	}
	t.Counts[i]++
}

// edge returns the lower end of a bucket.
func edge(i int) float64 {
	if i == 0 {
		return 0
	}
	return math.Exp2(float64(i-1) / perDouble)
}

// age ends an hour.
func (t *tail) age() {
	kept := math.Exp2(-1. / tailHalf)
	for i := range t.Counts {
		t.Counts[i] *= kept
	}
	t.Weight *= kept
}

const (
	// heaviest is the number of gaps the tail is fitted to.
	heaviest = 15
	// learntWeight is the weight to be seen before any alarm.
	learntWeight = 100
	// leastLimit is the weight of the lightest silence to raise an alarm, even for the
	// steadiest pushes.
	leastLimit = 12
	// falseAlarms a year are aimed at.
	falseAlarms = .05
)

// limit returns the weight exceeded by a gap falseAlarms times a year, if `yearly` bursts
// come in a year. It continues the heaviest gaps as an exponential tail, with a mean
// enlarged by its own uncertainty. It leaves out the heaviest gap, perhaps an outage. It
// is false before enough gaps were seen.
func (t *tail) limit(yearly float64) (float64, bool) {
	sum, out, left, top := 0.0, 1.0, float64(heaviest), 0.0
	i := tailBuckets
	for i > 0 && left > 0 {
		i--
		n := t.Counts[i]
		skip := min(n, out)
		n, out = min(n-skip, left), out-skip
		if n == 0 {
			continue
		}
		sum, left = sum+n*(edge(i)+edge(i+1))/2, left-n
		if top == 0 && n > .3 {
			top = edge(i + 1)
		}
	}
	if left > 0 || t.Weight < learntWeight {
		return 0, false
	}
	from := edge(i)
	mean := (sum/heaviest - from) * (1 + 4/math.Sqrt(heaviest))
	years := t.Weight / max(yearly, 1)
	limit := from + mean*math.Log(max(heaviest/years/falseAlarms, 1))
	return max(limit, top, leastLimit), true
}
