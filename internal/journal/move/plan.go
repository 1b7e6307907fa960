package move

import (
	"context"
	"time"

	"github.com/auditrelay/auditrelay/internal/store"
)

// Plan is what a move would copy.
type Plan struct {
	Logs   []Planned `json:"logs"`
	Values int       `json:"values"`
	// Seconds is about how long it takes.
	Seconds float64 `json:"seconds_approx"`
}

// Planned is what a move would copy of a log.
type Planned struct {
	Log     string    `json:"log"`
	First   store.Pos `json:"first_position"`
	Last    store.Pos `json:"last_position"`
	Records uint64    `json:"records"`
	Bytes   int64     `json:"bytes"`
	// Largest is the size of the largest record: the new place has to take it.
	Largest int `json:"largest_bytes"`
	Gaps    int `json:"gaps"`
}

// About what three servers with three replicas took on one machine with two busy cores.
const (
	recordsPerSecond = 12_000
	bytesPerSecond   = 18 << 20
)

// Look reads everything in a place, and changes nothing.
func Look(ctx context.Context, from Place) (p Plan, err error) {
	began := time.Now()
	logs, err := moved(ctx, from)
	if err != nil {
		return p, err
	}
	for _, name := range logs {
		one, err := look(ctx, from, name)
		if err != nil {
			return p, err
		}
		p.Logs = append(p.Logs, one)
		p.Seconds += max(float64(one.Records)/recordsPerSecond, float64(one.Bytes)/bytesPerSecond)
	}
	values, err := from.Table().List(ctx, "")
	for _, v := range values {
		if !begins(v.Key, ownKeys) {
			p.Values++
		}
	}
	p.Seconds += time.Since(began).Seconds()
	return p, err
}

func look(ctx context.Context, from Place, name string) (p Planned, err error) {
	l, state, err := open(ctx, from, name, store.Options{})
	if err != nil {
		return p, err
	}
	p = Planned{Log: name, First: state.First, Last: state.End}
	for item, err := range l.Read(ctx, state.First, false) {
		if err != nil {
			return p, err
		}
		if item.Gap != nil {
			p.Gaps++
			continue
		}
		size := len(item.Record.Key) + len(item.Record.Data)
		p.Records, p.Bytes, p.Largest = p.Records+1, p.Bytes+int64(size), max(p.Largest, size)
	}
	return p, nil
}
