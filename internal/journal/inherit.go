package journal

import (
	"context"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/auditrelay/auditrelay/internal/streams"
	"github.com/auditrelay/auditrelay/relay"
)

// samples is how many records are read at a start to learn whose events no sink
// has had yet.
// Where less than a share of the budget is undelivered it does not matter.
const (
	samples       = 64
	worthSampling = 8
)

// inherit accounts for the undelivered records that an earlier process has left.
// It reads samples of them only, evenly spaced, and takes each for as many of its
// neighbours, with the stream's mean size. Ingest does not wait for it: for the moments
// that it takes, nobody's old events count.
func (j *Journal) inherit(ctx context.Context) {
	for {
		delivered, info, err := j.standing(ctx)
		if err == nil {
			j.sample(ctx, delivered, info)
			return
		}
		// A sink that was never opened has no position before it is.
		if streams.Pause(ctx, retryPause) != nil {
			return
		}
	}
}

func (j *Journal) sample(ctx context.Context, delivered uint64, info *jetstream.StreamInfo) {
	state, end := info.State, j.ages.inherited()+1
	if state.Msgs == 0 || delivered >= j.ages.inherited() {
		return
	}
	from := max(state.FirstSeq, delivered+1)
	mean := state.Bytes / state.Msgs
	if int64((end-from)*mean) < j.room.budget/worthSampling {
		return
	}
	step := max(1, (end-from+samples-1)/samples)
	var found []cell
	for ; from < end; from += step {
		next := min(from+step, end)
		by, err := j.sourcesOf(ctx, from+(next-from)/2)
		if err != nil {
			j.log.Debug("whose a record is cannot be told; it counts for nobody", "record", from, "error", err)
			continue
		}
		found = append(found, newCell(next-1, int64((next-from)*mean), by))
	}
	j.room.inherit(found)
}

// sourcesOf is whose events a record holds, and how many bytes of each, as far as
// its beginning tells.
func (j *Journal) sourcesOf(ctx context.Context, record uint64) ([]share, error) {
	msg, err := j.stream.GetMsg(ctx, record, jetstream.WithGetMsgSubject(j.names.eventsSubject))
	if err != nil {
		return nil, fmt.Errorf("read record %d: %w", record, err)
	}
	reader, err := openPieces(msg.Data)
	var events []relay.Event
	if err == nil {
		events, _, err = reader.next(nil, pieceBytes) // a large record's beginning is enough
	}
	if err != nil {
		return nil, fmt.Errorf("read record %d: %w", record, err)
	}
	var shares []share
	for i := range events {
		e := &events[i]
		if n := len(shares); n == 0 || shares[n-1].source != e.Source {
			shares = append(shares, share{source: e.Source})
		}
		shares[len(shares)-1].bytes += len(e.Body) + 1
	}
	return shares, nil
}
