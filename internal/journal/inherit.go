package journal

import (
	"context"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/auditrelay/auditrelay/internal/diskbudget"
	"github.com/auditrelay/auditrelay/internal/pause"
	"github.com/auditrelay/auditrelay/internal/record"
	"github.com/auditrelay/auditrelay/internal/streamserver"
	"github.com/auditrelay/auditrelay/relay"
)

// A start reads samples records to learn whose events are undelivered. It reads none
// if those take less than 1/worthSampling of the budget.
const (
	samples       = 64
	worthSampling = 8
	// inheritAfter leaves the disk to the first pushes: each sample costs a block.
	inheritAfter = time.Second
)

// inherit accounts for the undelivered records of an earlier process. It reads evenly
// spaced samples, and counts each for its neighbours too, with the stream's mean size.
// Ingest does not wait for that; until it ends, old events count for nobody.
func (j *Journal) inherit(ctx context.Context) {
	for rest := inheritAfter; pause.For(ctx, rest) == nil; rest = streamserver.RetryPause {
		delivered, info, err := j.standing(ctx)
		if err == nil {
			j.sample(ctx, delivered, info)
			return
		}
		// A new sink has no position until it is opened.
	}
}

func (j *Journal) sample(ctx context.Context, delivered uint64, info *jetstream.StreamInfo) {
	state, end := info.State, j.ages.Inherited()+1
	if state.Msgs == 0 || delivered >= j.ages.Inherited() {
		return
	}
	from := max(state.FirstSeq, delivered+1)
	mean := state.Bytes / state.Msgs
	if int64((end-from)*mean) < int64(j.cfg.MaxBytes)/worthSampling {
		return
	}
	step := max(1, (end-from+samples-1)/samples)
	var found []diskbudget.Cell
	for ; from < end; from += step {
		next := min(from+step, end)
		by, err := j.sourcesOf(ctx, from+(next-from)/2)
		if err != nil {
			j.log.Debug("whose a record is cannot be told; it counts for nobody", "record", from, "error", err)
			continue
		}
		found = append(found, diskbudget.NewCell(next-1, int64((next-from)*mean), by))
	}
	j.budget.Inherit(found)
}

// sourcesOf is how many bytes of a record are each source's, judged by its first piece.
func (j *Journal) sourcesOf(ctx context.Context, seq uint64) ([]diskbudget.Share, error) {
	msg, err := j.get(ctx, seq)
	if err != nil {
		return nil, err
	}
	reader, err := record.Open(msg.Data)
	var events []relay.Event
	if err == nil {
		events, _, err = reader.Next(nil, record.PieceBytes) // a large record's beginning is enough
	}
	if err != nil {
		return nil, fmt.Errorf("read record %d: %w", seq, err)
	}
	var shares []diskbudget.Share
	for i := range events {
		e := &events[i]
		if n := len(shares); n == 0 || shares[n-1].Source != e.Source {
			shares = append(shares, diskbudget.Share{Source: e.Source})
		}
		shares[len(shares)-1].Bytes += len(e.Body) + 1
	}
	return shares, nil
}
