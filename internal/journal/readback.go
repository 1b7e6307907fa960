package journal

import (
	"context"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/auditrelay/auditrelay/internal/record"
	"github.com/auditrelay/auditrelay/relay"
)

const (
	// firstLook and longestLook bound how many records ReadBack reads at once.
	// lookBytes bounds what it holds of them, beside one record. lookAhead bounds
	// the records that it requests in advance.
	firstLook   = 16
	longestLook = 4096
	lookBytes   = 16 << 20
	lookAhead   = 256
)

// ReadBack calls visit with the events of each record up to position last that was
// committed at or after since, newest record first, until visit returns false. Within
// a record events keep their order; a large record comes in pieces. ReadBack skips
// records that cannot be read (sources set them aside), and records appended meanwhile.
//
// Up to [Journal.Inherited] all records are on disk: a start writes the newest block
// anew. A later record may be readable although its fsync failed.
func (j *Journal) ReadBack(ctx context.Context, since time.Time, last uint64, visit func([]relay.Event) bool) error {
	info, err := j.stream.Info(ctx)
	if err != nil {
		return fmt.Errorf("read the journal's state: %w", err)
	}
	first, end := info.State.FirstSeq, min(info.State.LastSeq, last)+1
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

// Inherited is the newest position that an earlier process has committed.
func (j *Journal) Inherited() uint64 { return j.ages.inherited() }

// visitRecord reports whether to go on. It skips a record that cannot be read.
func visitRecord(data []byte, visit func([]relay.Event) bool) bool {
	r, err := record.Open(data)
	if err != nil {
		return true
	}
	for {
		events, _, err := r.Next(nil, record.PieceBytes)
		if err != nil {
			return true
		}
		if !visit(events) {
			return false
		}
		if r.Done() {
			return true
		}
	}
}

// stored is a record as the server keeps it.
type stored struct {
	seq  uint64
	time time.Time
	data []byte
}

// readRange reads the records in [from, end), in order. Beyond lookBytes it keeps
// only the newest, at least one, and returns whole as false.
func (j *Journal) readRange(ctx context.Context, from, end uint64) (held []stored, whole bool, err error) {
	var r reader
	if err := r.asks(ctx, j, from); err != nil {
		return nil, false, err
	}
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
	it, err := consumer.Messages(jetstream.PullMaxMessagesWithBytesLimit(lookAhead, j.readLimit()))
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
		if err := r.asks(ctx, j, meta.Sequence.Stream); err != nil {
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
