package cluster

import (
	"context"
	"errors"
	"fmt"

	"github.com/auditrelay/auditrelay/internal/store"
)

// Append implements [store.Log].
func (l *Log) Append(ctx context.Context, drafts ...store.Draft) (store.Pos, error) {
	return whole(l.append(ctx, nil, recordsOf(drafts)))
}

// AppendAt implements [store.Log].
func (l *Log) AppendAt(ctx context.Context, after store.Pos, drafts ...store.Draft) (store.Pos, error) {
	return whole(l.append(ctx, &after, recordsOf(drafts)))
}

// whole makes the failure of an append that stored some of its drafts one whose outcome is not known.
func whole(first store.Pos, err error) (store.Pos, error) {
	if err != nil && first > 0 {
		return 0, fmt.Errorf("%w: %w", store.ErrUnknown, errors.New(err.Error()))
	}
	return first, err
}

func recordsOf(drafts []store.Draft) []store.Record {
	records := make([]store.Record, len(drafts))
	for i := range drafts {
		records[i].Draft = drafts[i]
	}
	return records
}

// append appends records, whose positions it does not look at. Those without a time have the present one.
// With an error, first is that of the records that were stored, or 0 where it is not known of any.
func (l *Log) append(ctx context.Context, after *store.Pos, records []store.Record) (first store.Pos, err error) {
	if err := l.fits(records); err != nil {
		return 0, err
	}
	if len(records) == 0 {
		state, err := l.State(ctx)
		if err != nil {
			return 0, err
		}
		return state.End + 1, nil
	}
	batches := batchesOf(records)
	if len(batches) == 1 {
		l.whole.RLock()
		defer l.whole.RUnlock()
	} else {
		l.whole.Lock()
		defer l.whole.Unlock()
	}
	// A crash between two batches leaves the first.
	for i, batch := range batches {
		at, err := l.keep(ctx, after, batch)
		if err != nil {
			return first, err
		}
		if i == 0 {
			first = at
		}
		if after != nil {
			end := at + store.Pos(len(batch)) - 1
			after = &end
		}
	}
	return first, nil
}

// fits refuses records that no message can hold.
func (l *Log) fits(records []store.Record) error {
	limit := l.MaxRecord()
	for i := range records {
		d := &records[i].Draft
		if len(d.Key) > store.MaxKey {
			return fmt.Errorf("%w: its key has %d bytes, and %d are the limit", store.ErrTooLarge, len(d.Key), store.MaxKey)
		}
		if size := len(d.Key) + len(d.Data); size > limit {
			return fmt.Errorf("%w: it has %d bytes, and the servers of journal.url take %d", store.ErrTooLarge, size, limit)
		}
	}
	return nil
}

// attempt is one append that is tried until the cluster has it.
type attempt struct {
	log     *Log
	records []store.Record
	nonce   uint64 // of the first record; the others follow
	// after is the sequence that the stream has to end with; nil for any.
	after *uint64
	turn  turn   // at the newest try
	frame []byte // of the last record, at the newest try
	tries int
}

// keep stores one batch, in however many tries.
func (l *Log) keep(ctx context.Context, after *store.Pos, records []store.Record) (first store.Pos, err error) {
	a := &attempt{log: l, records: records, nonce: newNonce()}
	_, err = l.store.insist(ctx, func(ctx context.Context) (last uint64, err error) {
		if err := a.expect(after); err != nil {
			return 0, err
		}
		last, err = a.try(ctx)
		if isWrongSequence(err) && a.after != nil {
			last, err = a.conflict(ctx, err)
		}
		if err != nil {
			return 0, err
		}
		if first, err = l.accept(ctx, last, a); err != nil {
			err = errors.New(err.Error()) // the records may be stored, so that it is no refusal
		}
		return last, err
	})
	if err != nil {
		return 0, fmt.Errorf("append to the log %s: %w", l.name, err)
	}
	return first, nil
}

// expect sets where the stream has to end, if the log has to end after a position.
func (a *attempt) expect(after *store.Pos) error {
	a.turn = a.log.meta().last()
	a.tries++
	if after == nil {
		return nil
	}
	if *after+1 < a.turn.first() {
		why := store.ErrConflict
		if a.tries > 1 { // the turn has begun meanwhile, and may have what an earlier try stored
			why = store.ErrUnknown
		}
		return fmt.Errorf("%w: the log %s goes on after position %d", why, a.log.name, *after)
	}
	seq := uint64(*after) - a.turn.Shift
	a.after = &seq
	return nil
}

// try publishes once, and returns the sequence of the last message.
func (a *attempt) try(ctx context.Context) (last uint64, err error) {
	ctx, cancel := context.WithTimeout(ctx, attemptTimeout)
	defer cancel()
	ack, err := a.send()
	if err != nil {
		return 0, err
	}
	select {
	case got := <-ack.Ok():
		return got.Sequence, nil
	case err = <-ack.Err():
	case <-ctx.Done():
		err = ctx.Err()
	}
	if hasCode(err, codeBatchDuplicate) {
		return a.stored(ctx)
	}
	return 0, err
}

// conflict reads what stands after the expected end, since the refusal alone proves nothing:
// it may be the answer to a retry, or of a leader that was deposed. It returns the place of
// the last message if an earlier try stored it, ErrConflict if somebody else's message
// stands there, and otherwise the refusal, which another try may overcome.
func (a *attempt) conflict(ctx context.Context, refused error) (last uint64, err error) {
	l := a.log
	got, err := l.store.next(ctx, l.stream, *a.after+1)
	if errors.Is(err, errMissing) {
		info, err := l.store.info(ctx, l.stream)
		if err != nil || info.State.LastSeq == *a.after {
			return 0, refused // another write may have been under way
		}
		return 0, fmt.Errorf("%w: the log ends with sequence %d, and not %d", store.ErrConflict, info.State.LastSeq, *a.after)
	}
	if err != nil {
		return 0, refused
	}
	if !l.holds(got, a.nonce) {
		return 0, fmt.Errorf("%w: the log goes on after sequence %d", store.ErrConflict, *a.after)
	}
	last = *a.after + uint64(len(a.records))
	if got, err = l.store.next(ctx, l.stream, last); err != nil || !l.holds(got, a.nonce+uint64(len(a.records))-1) {
		return 0, fmt.Errorf("%w: the log has only some of the records", store.ErrUnknown)
	}
	return last, nil
}

// holds reports whether a message has the nonce.
func (l *Log) holds(m message, nonce uint64) bool {
	f, err := decode(l.stream, m.Data)
	return err == nil && f.nonce == nonce
}

// errElsewhere means that the cluster lost the end of the log while it stored an append.
var errElsewhere = errors.New("the cluster lost the end of the log meanwhile")

// accept notes where the records stand, before anybody is told. It refuses positions that
// were other records', since the cluster lost those: then the next try finds out where the
// records stand now, or stores them again if they stand where nobody reads.
//
// A crash before the note leaves records that were not acknowledged.
func (l *Log) accept(ctx context.Context, last uint64, a *attempt) (store.Pos, error) {
	n := uint64(len(a.records))
	for i := range n {
		pos, readable := l.meta().pos(last - n + 1 + i)
		if !readable {
			a.nonce = newNonce()
			return 0, errElsewhere
		}
		if _, fits := l.known.see(spot{pos, a.nonce + i}, a.turn, true); !fits { // the answer may be from before a loss
			if err := l.compare(ctx); err != nil {
				return 0, err
			}
			return 0, errElsewhere
		}
		if err := l.note.add(l.meta().ID, spot{pos, a.nonce + i}); err != nil {
			return 0, err
		}
	}
	end := store.Pos(last + a.turn.Shift)
	if err := l.remember(spot{end, a.nonce + n - 1}); err != nil {
		return 0, err
	}
	if n == 1 && a.tries == 1 { // what a retry stored may have the time of another try
		l.recent.put(end, a.frame)
	}
	l.tail.reach(end)
	return end - store.Pos(n) + 1, nil
}
