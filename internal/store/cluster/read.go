package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/auditrelay/auditrelay/internal/retry"
	"github.com/auditrelay/auditrelay/internal/store"
)

const (
	// One request for messages asks for readMessages and readBytes, which are what a reader
	// has in memory, and one message more.
	readMessages = 256
	readBytes    = 2 << 20
	// silence is how long a reader waits for the next message of an answer, before it asks
	// again.
	silence = 2 * time.Second
	// pollInterval is how often a log is asked for what other processes appended, while
	// somebody follows it. What this process appends is told at once.
	pollInterval = time.Second
)

// Read implements [store.Log].
func (l *Log) Read(ctx context.Context, from store.Pos, follow bool) iter.Seq2[store.Item, error] {
	return func(yield func(store.Item, error) bool) {
		r := &reader{log: l, next: max(from, 1)}
		state, err := l.State(ctx)
		if err != nil {
			yield(store.Item{}, err)
			return
		}
		for end := state.End; ; {
			if r.next > end {
				if !follow {
					return
				}
				if end, err = l.wait(ctx, r.next); err != nil {
					yield(store.Item{}, err)
					return
				}
			}
			items, err := r.insist(ctx)
			if err != nil {
				yield(store.Item{}, err)
				return
			}
			for _, item := range items {
				if !follow && r.next > end {
					return
				}
				if !yield(r.pass(item, end, follow), nil) {
					return
				}
			}
		}
	}
}

// wait returns the end of the log once it is at a position, or beyond.
func (l *Log) wait(ctx context.Context, pos store.Pos) (store.Pos, error) {
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	for {
		end, grown := l.tail.beyond()
		if end >= pos {
			return end, nil
		}
		select {
		case <-grown:
		case <-tick.C:
			l.poll(ctx)
		case <-l.store.ctx.Done():
			return 0, store.ErrClosed
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
}

// poll asks for the end of the log, once for all who wait. While the servers are away there
// is none to be had, and those who wait go on waiting.
func (l *Log) poll(ctx context.Context) {
	if !l.polling.TryLock() {
		return
	}
	defer l.polling.Unlock()
	if time.Since(l.polled) < pollInterval*9/10 {
		return
	}
	if _, err := l.look(ctx); err != nil {
		l.store.log.Debug("asking for the end of a log failed", "log", l.name, "error", err)
	}
	l.polled = time.Now()
}

// reader reads a log.
type reader struct {
	log  *Log
	next store.Pos
	time time.Time // of the newest record, since times never decrease
}

// pass hands an item on, and goes on after it. A reader that does not follow ends at end.
func (r *reader) pass(item store.Item, end store.Pos, follow bool) store.Item {
	if g := item.Gap; g != nil {
		if !follow {
			g.To = min(g.To, end)
		}
		r.next = g.To + 1
		return item
	}
	if item.Record.Time.Before(r.time) {
		item.Record.Time = r.time
	}
	r.time, r.next = item.Record.Time, item.Record.Pos+1
	return item
}

// insist reads until there is at least one item, however long the servers are away.
func (r *reader) insist(ctx context.Context) ([]store.Item, error) {
	told := false
	for {
		items, err := r.items(ctx)
		switch {
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case len(items) > 0:
			return items, nil
		case errors.Is(err, ErrVersion), errors.Is(err, nats.ErrConnectionClosed), errors.Is(err, store.ErrClosed):
			return nil, r.log.store.closedOr(err)
		}
		if !told && err != nil {
			told = true
			r.log.store.log.Warn("reading a log was interrupted, and is tried again", "log", r.log.name, "position", r.next, "error", err)
		}
		if err := retry.Sleep(ctx, retryPause); err != nil {
			return nil, err
		}
	}
}

// items reads what comes next. It returns nothing if the log turned out to be another than
// it seemed: then it is to be asked again.
func (r *reader) items(ctx context.Context) ([]store.Item, error) {
	at := r.log.meta().find(r.next)
	if at.lost != "" {
		return []store.Item{{Gap: &store.Gap{From: r.next, To: at.until, Why: at.lost}}}, nil
	}
	messages := r.recent(at)
	if len(messages) == 0 {
		var err error
		if messages, err = r.fetch(ctx, at.seq); err != nil {
			return nil, err
		}
	}
	var items []store.Item
	for i := range messages {
		pos := r.next + store.Pos(i)
		if messages[i].Seq != at.seq+uint64(i) || pos > at.until {
			break
		}
		f, err := decode(r.log.stream, messages[i].Data)
		if err != nil {
			break // the leader may have it
		}
		if newest, fits := r.log.known.see(spot{pos, f.nonce}, at.by, false); !fits {
			break
		} else if newest {
			s := spot{pos, f.nonce}
			if err := errors.Join(r.log.note.add(r.log.meta().ID, s), r.log.remember(s)); err != nil {
				return nil, err
			}
		}
		items = append(items, store.Item{Record: f.record(pos)})
	}
	if len(items) > 0 {
		return items, nil
	}
	return r.confirm(ctx, at)
}

// recent returns what this process appended just now.
func (r *reader) recent(at place) (all []message) {
	for i, frame := range r.log.recent.from(r.next) {
		all = append(all, message{Seq: at.seq + uint64(i), Data: frame})
	}
	return all
}

// confirm asks the leader what stands at the next position, since a replica did not have it
// or had something else there.
func (r *reader) confirm(ctx context.Context, at place) ([]store.Item, error) {
	l := r.log
	got, err := l.store.next(ctx, l.stream, at.seq)
	switch {
	case errors.Is(err, errMissing):
		return r.confirmEnd(ctx, at)
	case err != nil:
		return nil, err
	case got.Seq > at.seq:
		return r.gap(ctx, at, got.Seq-1, "")
	}
	f, err := decode(l.stream, got.Data)
	switch {
	case errors.Is(err, ErrVersion):
		return nil, fmt.Errorf("read position %d of the log %s: %w", r.next, l.name, err)
	case err != nil:
		return r.gap(ctx, at, at.seq, l.store.keep(l.stream, &got))
	}
	if _, fits := l.known.see(spot{r.next, f.nonce}, at.by, false); !fits {
		if err := l.compare(ctx); err != nil || l.meta().find(r.next) != at {
			return nil, err
		}
	}
	return []store.Item{{Record: f.record(r.next)}}, nil
}

// confirmEnd is for a leader that has no message from a sequence on. Either they were there,
// and are damaged, or the leader does not know of them: it may be a new or a deposed one, or
// the cluster lost its end.
func (r *reader) confirmEnd(ctx context.Context, at place) ([]store.Item, error) {
	info, err := r.log.look(ctx)
	if err != nil {
		return nil, err
	}
	if info.State.LastSeq < at.seq || r.log.meta().find(r.next) != at {
		return nil, nil
	}
	return r.gap(ctx, at, info.State.LastSeq, "")
}

// gap names the positions up to a sequence, all of which the leader says are missing, or the one
// that is damaged and kept in a file.
func (r *reader) gap(ctx context.Context, at place, to uint64, kept string) ([]store.Item, error) {
	if err := r.log.refresh(ctx); err != nil { // a trim may have dropped them just now
		return nil, err
	}
	if now := r.log.meta().find(r.next); now != at {
		return nil, nil
	}
	last := min(r.next+store.Pos(to-at.seq), at.until)
	return []store.Item{{Gap: &store.Gap{From: r.next, To: last, Why: store.Damaged, Kept: kept}}}, nil
}

// fetch asks any replica for the messages from a sequence on. It returns none if the replica
// has none.
func (r *reader) fetch(ctx context.Context, seq uint64) (all []message, err error) {
	nc, stream := r.log.store.js.Conn(), r.log.stream
	request, err := json.Marshal(map[string]any{"seq": seq, "batch": readMessages, "max_bytes": readBytes})
	if err != nil {
		return nil, err
	}
	inbox, answers := nc.NewInbox(), make(chan *nats.Msg, readMessages+1) // and the answer's end
	subscribed, err := nc.ChanSubscribe(inbox, answers)
	if err != nil {
		return nil, err
	}
	defer func() { _ = subscribed.Unsubscribe() }() // on an error it ends with the connection
	if err := nc.PublishRequest("$JS.API.DIRECT.GET."+stream, inbox, request); err != nil {
		return nil, err
	}
	for silent := time.NewTimer(silence); ; silent.Reset(silence) {
		var m *nats.Msg
		select {
		case m = <-answers:
		case <-silent.C:
			if len(all) > 0 {
				return all, nil // what came is what a shorter answer would have had
			}
			return nil, fmt.Errorf("read stream %s: %w", stream, nats.ErrTimeout)
		case <-r.log.store.ctx.Done():
			return nil, store.ErrClosed
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		switch m.Header.Get("Status") {
		case "204", "404":
			return all, nil
		case "":
		default:
			return nil, fmt.Errorf("read stream %s: the server answered %s %s", stream, m.Header.Get("Status"), m.Header.Get("Description"))
		}
		seq, err := strconv.ParseUint(m.Header.Get(jetstream.SequenceHeader), 10, 64)
		if err != nil {
			return nil, fmt.Errorf("read stream %s: %w", stream, err)
		}
		all = append(all, message{Seq: seq, Data: m.Data})
	}
}
