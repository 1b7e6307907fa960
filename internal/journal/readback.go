package journal

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/auditrelay/auditrelay/internal/journal/record"
	"github.com/auditrelay/auditrelay/internal/store"
	"github.com/auditrelay/auditrelay/relay"
)

const (
	// firstLook and longestLook bound how many records ReadBack reads at once. lookBytes
	// bounds their bytes in memory, besides one record.
	firstLook   = 16
	longestLook = 4096
	lookBytes   = 16 << 20
)

// ReadBack calls visit with the events of each record up to position last, newest record
// first, back to those committed at since, until visit returns false. Within a record
// events keep their order; a large record comes in pieces. ReadBack skips unreadable
// records (sources set them aside), and records appended meanwhile.
func (j *Journal) ReadBack(ctx context.Context, since time.Time, last uint64, visit func([]relay.Event) bool) error {
	state, err := j.state(ctx)
	if err != nil {
		return err
	}
	end := min(state.End, store.Pos(last)) + 1
	for look := store.Pos(firstLook); end > state.First; {
		from := max(state.First, end-min(look, end))
		held, whole, err := j.readRange(ctx, from, end)
		if err != nil {
			return fmt.Errorf("read records %d to %d back: %w", from, end-1, err)
		}
		for i := len(held) - 1; i >= 0; i-- {
			if held[i].Time.Before(since) || !visitRecord(held[i].Data, visit) {
				return nil
			}
		}
		if whole {
			end, look = from, min(2*look, longestLook)
		} else {
			end, look = held[0].Pos, store.Pos(len(held))
		}
	}
	return nil
}

// visitRecord reports whether to go on. It skips what cannot be read.
func visitRecord(data []byte, visit func([]relay.Event) bool) bool {
	for events, err := range record.Pieces(data) {
		if err == nil && !visit(events) {
			return false
		}
	}
	return true
}

// readRange reads the records in [from, end), in order. Beyond lookBytes it keeps
// only the newest, at least one, and returns whole as false.
func (j *Journal) readRange(ctx context.Context, from, end store.Pos) (held []store.Record, whole bool, err error) {
	whole = true
	size := 0
	for item, err := range between(ctx, j.events, from, end) {
		if err != nil {
			return nil, false, err
		}
		if item.Record == nil {
			continue
		}
		r := *item.Record
		r.Data = slices.Clone(r.Data)
		held = append(held, r)
		for size += len(r.Data); size > lookBytes && len(held) > 1; {
			size -= len(held[0].Data)
			held, whole = held[1:], false
		}
	}
	return held, whole, nil
}
