package audit

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/auditrelay/auditrelay/internal/streams"
)

const (
	publishTimeout  = 5 * time.Second
	publishAttempts = 4 // without an answer; refusals do not count
	noLeaderPause   = 250 * time.Millisecond
)

// anyEntry lets appended entries follow whatever there is.
const anyEntry = -2

// Append adds e and returns its index once it is durable. An entry is added
// once however often its acknowledgement is lost. After an error the entry may
// or may not be in the trail: see [Trail.AppendIf].
func (t *Trail) Append(ctx context.Context, e Entry) (int64, error) {
	return t.append(ctx, e, anyEntry)
}

// AppendIf is Append where the newest entry of e's resource has the index
// newest, -1 for none. Else it adds nothing and returns ErrConflict. A caller
// who reads [Trail.Last], compares, and appends so, adds a change once: after
// crashes, after lost acknowledgements, and beside other relays.
func (t *Trail) AppendIf(ctx context.Context, e Entry, newest int64) (int64, error) {
	if newest >= 0 {
		e.PreviousIndex = &newest
	}
	return t.append(ctx, e, max(newest, -1))
}

func (t *Trail) append(ctx context.Context, e Entry, newest int64) (int64, error) {
	p, err := t.publication(e, newest)
	if err != nil {
		return 0, fmt.Errorf("append to audit trail: %w", err)
	}
	if err := t.lock(ctx); err != nil {
		return 0, err
	}
	defer t.unlock()
	for again := false; ; again = true {
		var index int64
		if err = t.ready(ctx); err == nil {
			index, err = t.publish(ctx, p)
		}
		if err == nil {
			return index, nil
		}
		if again || !errors.Is(err, ErrDamaged) { // damage is named, and then it goes on
			t.metrics.appendErrors.Inc()
			return 0, fmt.Errorf("append to audit trail: %w", err)
		}
	}
}

// publication encodes e.
func (t *Trail) publication(e Entry, newest int64) (*publication, error) {
	record, err := encodeRecord(e)
	if err != nil {
		return nil, err
	}
	p := &publication{
		id: nuid.Next(), newest: newest, leaf: leafHash(record),
		msg: t.codec.pack(resourceSubject(t.prefix, e.Project, e.Environment, e.Subject), record),
	}
	if limit := t.js.Conn().MaxPayload() - headerRoom; int64(len(p.msg.Data)) > limit {
		return nil, fmt.Errorf("%w: %s of %s/%s takes %d bytes compressed, the server's max_payload leaves %d",
			ErrTooLarge, e.Subject, e.Project, e.Environment, len(p.msg.Data), limit)
	}
	return p, nil
}

// publication is one entry on its way.
type publication struct {
	id     string // Nats-Msg-Id: tells our entry from another's
	msg    *nats.Msg
	leaf   tlog.Hash
	newest int64
}

// publish adds p and returns once it is durable. A power cut before the last line may
// take p with the name of its file; nobody was told of p by then.
func (t *Trail) publish(ctx context.Context, p *publication) (int64, error) {
	index, err := t.place(ctx, p)
	if err != nil {
		return 0, err
	}
	return index, t.settle(t.entriesName())
}

// place adds p behind the last known entry. The stream takes it only behind this entry.
// So a message sent twice, or overtaken by another relay, is refused; then the entries
// behind are read, and p is among them if it had arrived. A crash at any line leaves it
// in or out, whole.
func (t *Trail) place(ctx context.Context, p *publication) (int64, error) {
	if err := t.checkNewest(ctx, p); err != nil {
		return 0, err
	}
	for silent := 0; ; {
		behind := t.next()
		ack, err := t.send(ctx, p.msg, p.id, uint64(behind))
		switch {
		case err == nil && ack.Sequence == uint64(behind)+1:
			t.add(p.leaf)
			t.note(t.entriesName(), ack.Sequence)
			return behind, nil
		case err == nil, streams.IsWrongSequence(err):
			if index, err := t.catchUp(ctx, p); index >= 0 || err != nil {
				return index, err
			}
			if t.next() == behind { // refused, and yet nothing new: not for ever
				silent++
			}
		case ctx.Err() != nil:
			return 0, fmt.Errorf("wait for the acknowledgement: %w", ctx.Err())
		default: // the entry may be there
			silent++
		}
		if silent == publishAttempts {
			return 0, fmt.Errorf("publish entry: %w", err)
		}
	}
}

// send publishes once, to be stored as the message behind last.
func (t *Trail) send(ctx context.Context, msg *nats.Msg, id string, last uint64) (*jetstream.PubAck, error) {
	ctx, cancel := context.WithTimeout(ctx, publishTimeout)
	defer cancel()
	return t.js.PublishMsg(ctx, msg, jetstream.WithMsgID(id), jetstream.WithExpectLastSequence(last),
		// While a replicated stream has no leader the server says so at once.
		jetstream.WithRetryWait(noLeaderPause), jetstream.WithRetryAttempts(int(publishTimeout/noLeaderPause)))
}

// checkNewest holds p against the newest sound entry of its resource. Entries after
// this look are seen by catchUp.
func (t *Trail) checkNewest(ctx context.Context, p *publication) error {
	if p.newest == anyEntry {
		return nil
	}
	e, found, err := t.newest(ctx, p.msg.Subject)
	if err != nil {
		return fmt.Errorf("read newest entry: %w", err)
	}
	if !found {
		e.Index = -1
	}
	if e.Index != p.newest {
		return ErrConflict
	}
	return nil
}

// catchUp adds to the tree the entries of others. It returns the index of p if p is
// among them, else -1.
func (t *Trail) catchUp(ctx context.Context, p *publication) (int64, error) {
	info, err := t.entries.Info(ctx)
	if err != nil {
		return -1, fmt.Errorf("read stream state: %w", err)
	}
	if info.State.LastSeq < uint64(t.next()) {
		return -1, t.damage("entries from %d on are gone", info.State.LastSeq)
	}
	conflict := false
	for seq := uint64(t.next()) + 1; seq <= info.State.LastSeq; seq++ {
		msg, leaf, err := t.readLeaf(ctx, int64(seq)-1)
		if err != nil {
			return -1, err
		}
		t.add(leaf)
		if p == nil {
			continue
		}
		if msg.Header.Get(nats.MsgIdHdr) == p.id {
			return int64(seq) - 1, nil // the entries behind it are read the next time
		}
		conflict = conflict || p.newest != anyEntry && msg.Subject == p.msg.Subject && int64(seq)-1 > p.newest
	}
	if conflict {
		return -1, ErrConflict
	}
	return -1, nil
}

// damage has the trail read back, and is the error for the cause.
func (t *Trail) damage(format string, args ...any) error {
	err := fmt.Errorf("%w: "+format, append([]any{ErrDamaged}, args...)...)
	t.suspect(err.Error())
	return err
}

// readLeaf reads an entry; the entry must be there. Needs the turn.
func (t *Trail) readLeaf(ctx context.Context, index int64) (*jetstream.RawStreamMsg, tlog.Hash, error) {
	msg, err := t.entries.GetMsg(ctx, uint64(index)+1)
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return nil, tlog.Hash{}, t.damage("entry %d is missing", index)
	}
	if err != nil {
		return nil, tlog.Hash{}, fmt.Errorf("read entry %d: %w", index, err)
	}
	if msg.Header.Get(lostHeader) != "" {
		return msg, lostLeaf(index), nil
	}
	record, err := t.codec.unpack(msg.Header, msg.Data)
	if err != nil {
		record = msg.Data // as when it is read back
		t.suspect(fmt.Sprintf("entry %d: %v", index, err))
	}
	return msg, leafHash(record), nil
}

// add grows the tree by a durable entry.
func (t *Trail) add(leaf tlog.Hash) {
	t.tree.grow(leaf)
	t.pending = append(t.pending, leaf)
	t.grown()
}
