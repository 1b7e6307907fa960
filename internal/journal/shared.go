package journal

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/auditrelay/auditrelay/internal/journal/record"
	"github.com/auditrelay/auditrelay/internal/retry"
	"github.com/auditrelay/auditrelay/internal/store"
	"github.com/auditrelay/auditrelay/relay"
)

// follow reads what other relays append to the log, until ctx ends: the events are undelivered
// bytes of their sources here as well, and repeated pushes of them are recognised. What this
// process appends, and what was lost, is known otherwise.
func (j *Journal) follow(ctx context.Context) {
	after := j.inherited
	for ctx.Err() == nil {
		err := j.followFrom(ctx, &after)
		if errors.Is(err, store.ErrClosed) {
			return
		}
		if err != nil && ctx.Err() == nil {
			j.log.Warn("following what other relays take was interrupted; it goes on", "error", err)
			_ = retry.Sleep(ctx, retryPause) // the end of ctx ends the loop
		}
	}
}

// followFrom passes on what comes after a position, and moves it. It ends where the epoch has
// changed: what was read ahead may be lost.
func (j *Journal) followFrom(ctx context.Context, after *store.Pos) error {
	epoch := j.set.opts.Epoch()
	for item, err := range j.events.Read(ctx, *after+1, true) {
		if err != nil {
			return fmt.Errorf("read the journal from record %d on: %w", *after+1, err)
		}
		if r := item.Record; r != nil && r.Kind == kindEvents {
			j.learn(r, epoch)
		}
		if *after = lastOf(&item); j.set.opts.Epoch() != epoch {
			return nil
		}
	}
	return nil
}

// learn takes a record into account if another relay has appended it. One that cannot be read is named
// by whoever reads for a sink.
func (j *Journal) learn(r *store.Record, epoch uint64) {
	if _, writer, _ := keyIn(r); writer == j.writer {
		return
	}
	m := markOf(r)
	m.events = j.commits.learn(record.Count(r.Data))
	var shares []sourceBytes
	take := func(events []relay.Event) bool {
		shares = addShares(shares, events)
		j.set.opts.Others(events, epoch)
		return true
	}
	if d, _ := j.decoded.Decode(uint64(r.Pos), r.Data); d.Large {
		visitRecord(r.Data, take)
	} else if len(d.Events) > 0 {
		take(d.Events)
	}
	j.end.count(r.Pos, record.Count(r.Data))
	j.committed(m, len(r.Data)+recordFrame, shares)
	if told := j.sealed.Load(); told != nil {
		if d, err := record.DigestOf(r.Data); err == nil {
			(*told)(Sealed{Position: uint64(r.Pos), Digest: d})
		}
	}
}

// addShares adds the bytes of events to those of their sources.
func addShares(shares []sourceBytes, events []relay.Event) []sourceBytes {
	for i := range events {
		e := &events[i]
		if n := len(shares); n == 0 || shares[n-1].Source != e.Source {
			shares = append(shares, sourceBytes{Source: e.Source})
		}
		shares[len(shares)-1].Bytes += len(e.Body) + 1
	}
	return shares
}

// trimValue announces a trim.
type trimValue struct {
	Before store.Pos `json:"before"`
	Log    string    `json:"log_id"`
	Epoch  uint64    `json:"epoch"`
}

// announce returns how far this relay may trim at present. A purge of a stream has no condition,
// so in a cluster the trim is announced in the table first, under the epoch of the turn, and only
// then the registered sinks are listed. A sink that is registered before the announcement is in
// the list, and one that is registered later begins after the announced position: so a purge does
// no harm however late it is done, by whomever. A relay whose turn is over cannot announce.
//
// A crash after the announcement leaves records that the next trim removes.
func (j *Journal) announce(ctx context.Context, keep store.Pos, free *extent) (store.Pos, error) {
	turn := j.set.trims.Load()
	switch {
	case turn == nil:
		return 0, nil
	case !j.set.opts.Shared:
		return keep, nil
	}
	value, err := json.Marshal(trimValue{Before: keep, Log: j.id.String(), Epoch: turn.Number()})
	if err == nil {
		_, err = j.table.Put(ctx, j.keys.trim, value, turn.Guard())
	}
	if err != nil {
		return 0, fmt.Errorf("announce the trim up to record %d: %w", keep, err)
	}
	lowest, sinks, err := j.lowest(ctx, &free.state)
	if err != nil || !sinks {
		return keep, err
	}
	return min(keep, lowest+1), nil
}

// announced is where a new sink begins: at the first record, unless a later trim is announced.
func (j *Journal) announced(ctx context.Context, first store.Pos) (store.Pos, error) {
	v, err := j.table.Get(ctx, j.keys.trim)
	if err != nil {
		return 0, fmt.Errorf("read how far the journal is to be trimmed: %w", err)
	}
	var trim trimValue
	if json.Unmarshal(v.Data, &trim) == nil && trim.Log == j.id.String() {
		first = max(first, trim.Before)
	}
	return first, nil
}
