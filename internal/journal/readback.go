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
	// firstLook and longestLook bound how many records ReadBack reads at once. lookBytes
	// bounds their bytes in memory, beside one record. lookAhead bounds the records
	// requested in advance.
	firstLook   = 16
	longestLook = 4096
	lookBytes   = 16 << 20
	lookAhead   = 256
)

// ReadBack calls visit with the events of each record up to position last, newest record
// first, back to those committed at since, until visit returns false. Within a record
// events keep their order; a large record comes in pieces. ReadBack skips unreadable
// records (sources set them aside), and records appended meanwhile.
//
// Up to [Journal.Inherited] all records are on disk: a start writes the newest block
// anew. A later record may be readable although its fsync failed.
func (j *Journal) ReadBack(ctx context.Context, since time.Time, last uint64, visit func([]relay.Event) bool) error {
	info, err := j.info(ctx)
	if err != nil {
		return err
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

// Inherited is the newest position committed by an earlier process.
func (j *Journal) Inherited() uint64 { return j.ages.Inherited() }

// visitRecord reports whether to go on. It skips an unreadable record.
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
	whole = true
	size, ahead := 0, jetstream.PullMaxMessagesWithBytesLimit(lookAhead, j.readLimit())
	err = j.scan(ctx, from, false, ahead, func(msg jetstream.Msg, meta *jetstream.MsgMetadata) (bool, error) {
		seq := meta.Sequence.Stream
		if err := r.asks(ctx, j, seq); err != nil {
			return false, err
		}
		if seq < end {
			held = append(held, stored{seq, meta.Timestamp, msg.Data()})
			size += len(msg.Data())
		}
		for size > lookBytes && len(held) > 1 {
			size -= len(held[0].data)
			held, whole = held[1:], false
		}
		return seq+1 < end, nil
	})
	return held, whole, err
}
