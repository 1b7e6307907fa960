package journal

import (
	"context"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/auditrelay/auditrelay/relay"
)

const (
	// firstLook and longestLook bound how many records ReadBack reads in one
	// go; lookBytes how much of them it holds, beside one record, and lookAhead
	// how many more are on their way.
	firstLook   = 16
	longestLook = 4096
	lookBytes   = 16 << 20
	lookAhead   = 256
)

// ReadBack gives the events of the records that were committed at or after
// since, one record at a time and the newest first, until visit returns false;
// within a record they are in their order, a large one comes in pieces. Records that cannot be read are
// passed over: sources set them aside. What is appended meanwhile is left out.
//
// All that it gives is on disk: see renewNewestBlock.
func (j *Journal) ReadBack(ctx context.Context, since time.Time, visit func([]relay.Event) bool) error {
	info, err := j.stream.Info(ctx)
	if err != nil {
		return fmt.Errorf("read the journal's state: %w", err)
	}
	first, end := info.State.FirstSeq, info.State.LastSeq+1
	for look := uint64(firstLook); info.State.Msgs > 0 && end > first; {
		from := max(first, end-min(look, end))
		held, whole, err := j.readRange(ctx, from, end)
		if err != nil {
			return fmt.Errorf("read records %d to %d back: %w", from, end-1, err)
		}
		for i := len(held) - 1; i >= 0; i-- {
			if held[i].time.Before(since) {
				return nil
			}
			if !visitRecord(held[i].data, visit) {
				return nil
			}
		}
		if whole {
			end, look = from, min(2*look, longestLook)
		} else {
			end, look = held[0].seq, uint64(len(held))
		}
	}
	return nil
}

// visitRecord reports whether to go on. A record that cannot be read is passed over.
func visitRecord(data []byte, visit func([]relay.Event) bool) bool {
	r, err := openPieces(data)
	if err != nil {
		return true
	}
	for {
		events, _, err := r.next(nil, pieceBytes)
		if err != nil {
			return true
		}
		if !visit(events) {
			return false
		}
		if r.given == r.events {
			return true
		}
	}
}

// stored is a record as it is kept.
type stored struct {
	seq  uint64
	time time.Time
	data []byte
}

// readRange reads the records in [from, end), in order. Where they are larger
// than lookBytes it keeps the newest, at least one, and whole is false.
func (j *Journal) readRange(ctx context.Context, from, end uint64) (held []stored, whole bool, err error) {
	consumer, err := j.stream.OrderedConsumer(ctx, jetstream.OrderedConsumerConfig{
		DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: from,
	})
	if err != nil {
		return nil, false, err
	}
	whole = true
	if consumer.CachedInfo().NumPending == 0 {
		return nil, whole, nil
	}
	it, err := consumer.Messages(jetstream.PullMaxMessagesWithBytesLimit(lookAhead, j.conn.readLimit()))
	if err != nil {
		return nil, false, err
	}
	defer it.Stop()
	for size := 0; ; {
		msg, err := it.Next(jetstream.NextContext(ctx))
		if err != nil {
			return nil, false, err
		}
		meta, err := msg.Metadata()
		if err != nil {
			return nil, false, err
		}
		if meta.Sequence.Stream < end {
			held = append(held, stored{meta.Sequence.Stream, meta.Timestamp, msg.Data()})
			size += len(msg.Data())
		}
		for size > lookBytes && len(held) > 1 {
			size -= len(held[0].data)
			held, whole = held[1:], false
		}
		if meta.Sequence.Stream+1 >= end || meta.NumPending == 0 {
			return held, whole, nil
		}
	}
}
