package journal

import (
	"context"
	"time"

	"github.com/auditrelay/auditrelay/internal/journal/record"
	"github.com/auditrelay/auditrelay/internal/retry"
)

const (
	// A start reads so many samples to learn whose the undelivered events are, unless those
	// take less than 1/worthSampling of the budget.
	samples       = 64
	worthSampling = 8
	// inheritAfter leaves the disk to the first pushes.
	inheritAfter = time.Second
)

// inherit accounts for the undelivered records of an earlier process. It reads evenly
// spaced samples, and counts each for its neighbours too.
// Ingest does not wait for that; until it ends, old events count for nobody.
func (j *Journal) inherit(ctx context.Context) {
	for rest := inheritAfter; retry.Sleep(ctx, rest) == nil; rest = retryPause {
		if free, err := j.standing(ctx); err == nil {
			j.sample(ctx, &free)
			return
		}
	}
}

func (j *Journal) sample(ctx context.Context, free *extent) {
	state, from, end := &free.state, free.end, j.inherited+1
	if !free.sinks || from >= end {
		return
	}
	mean := state.Bytes / int64(state.End+1-state.First)
	if int64(end-from)*mean < int64(j.cfg.MaxBytes)/worthSampling {
		return
	}
	step := max(1, (end-from+samples-1)/samples)
	var found []cell
	for at := from; at < end; at += step {
		next := min(at+step, end)
		r, err := recordFrom(ctx, j.events, at+(next-at)/2, next)
		var shares []sourceBytes
		if err == nil && r != nil {
			shares, err = sharesOf(r.Data)
		}
		if err != nil || r == nil {
			j.log.Debug("whose a record is cannot be told, so it counts for nobody", "record", at, "error", err)
			continue
		}
		found = append(found, newCell(uint64(next-1), int64(next-at)*int64(len(r.Data)+recordFrame), shares))
	}
	j.budget.inherit(found)
}

// sharesOf is how many bytes of a record are each source's, judged by its first piece.
func sharesOf(data []byte) ([]sourceBytes, error) {
	for events, err := range record.Pieces(data) { // a large record's beginning is enough
		return addShares(nil, events), err
	}
	return nil, nil
}
