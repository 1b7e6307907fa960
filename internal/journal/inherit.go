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

// A start reads samples records to learn whose events are undelivered, and how many. It reads
// fewSamples if those take less than 1/worthSampling of the budget.
const (
	samples       = 64
	fewSamples    = 8
	worthSampling = 8
	// inheritAfter leaves the disk to the first pushes: each sample costs a block.
	inheritAfter = time.Second
)

// inherit accounts for the undelivered records of an earlier process. It reads evenly
// spaced samples, and counts each for its neighbours too, with the stream's mean size.
// Ingest does not wait for that; until it ends, old events count for nobody, and a record as
// one event in a sink's lag.
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
	n := uint64(samples)
	worth := int64((end-from)*mean) >= int64(j.cfg.MaxBytes)/worthSampling
	if !worth {
		n = fewSamples
	}
	step := max(1, (end-from+n-1)/n)
	var found []diskbudget.Cell
	var marks []mark
	before := state.FirstTime
	for at := from; at < end; at += step {
		next := min(at+step, end)
		one, err := j.sampleOf(ctx, at+(next-at)/2)
		if err != nil {
			j.log.Debug("whose a record is cannot be told; it counts for nobody, and as one event", "record", at, "error", err)
			marks = append(marks, mark{record: next - 1, events: int64(next - at), at: before})
			continue
		}
		before = one.committed
		found = append(found, diskbudget.NewCell(next-1, int64((next-at)*mean), one.shares))
		marks = append(marks, mark{record: next - 1, events: int64((next - at) * one.events), at: before})
	}
	if worth {
		j.budget.Inherit(found)
	}
	j.backlog.inherit(from, marks)
}

// sampled is what one record of an earlier process tells.
type sampled struct {
	shares    []diskbudget.Share // by source, judged by its first piece
	events    uint64
	committed time.Time
}

func (j *Journal) sampleOf(ctx context.Context, seq uint64) (sampled, error) {
	msg, err := j.get(ctx, seq)
	if err != nil {
		return sampled{}, err
	}
	shares, err := sharesOf(msg.Data)
	if err != nil {
		return sampled{}, fmt.Errorf("read record %d: %w", seq, err)
	}
	return sampled{shares, record.Count(msg.Data), msg.Time}, nil
}

// sharesOf is how many bytes of a record are each source's, judged by its first piece.
func sharesOf(data []byte) ([]diskbudget.Share, error) {
	reader, err := record.Open(data)
	var events []relay.Event
	if err == nil {
		events, _, err = reader.Next(nil, record.PieceBytes) // a large record's beginning is enough
	}
	if err != nil {
		return nil, err
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
