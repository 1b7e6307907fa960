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
	return t.append(ctx, e, max(newest, -1))
}

func (t *Trail) append(ctx context.Context, e Entry, newest int64) (int64, error) {
	record, err := encodeRecord(e)
	if err != nil {
		return 0, fmt.Errorf("append to audit trail: %w", err)
	}
	p := publication{
		id: nuid.Next(), newest: newest, leaf: leafHash(record),
		msg: t.codec.pack(resourceSubject(t.prefix, e.Project, e.Environment, e.Subject), record),
	}
	if limit := t.js.Conn().MaxPayload() - headerRoom; int64(len(p.msg.Data)) > limit {
		return 0, fmt.Errorf("append to audit trail: %w: %s of %s/%s takes %d bytes compressed, the server's max_payload leaves %d",
			ErrTooLarge, e.Subject, e.Project, e.Environment, len(p.msg.Data), limit)
	}
	if err := t.lock(ctx); err != nil {
		return 0, err
	}
	defer t.unlock()
	index, err := t.publish(ctx, &p)
	if err != nil {
		t.metrics.appendErrors.Inc()
		return 0, fmt.Errorf("append to audit trail: %w", err)
	}
	return index, nil
}

// publication is one entry on its way.
type publication struct {
	id     string // Nats-Msg-Id: tells our entry from another's
	msg    *nats.Msg
	leaf   tlog.Hash
	newest int64
}

// publish adds p behind the last entry that is known. The stream takes it only
// if that is still the last, so a message that was sent twice, or that another
// relay overtook, is refused; then the entries behind are read, and where p is
// among them it had arrived. A crash at any line leaves it in or out, whole.
func (t *Trail) publish(ctx context.Context, p *publication) (int64, error) {
	if err := t.checkNewest(ctx, p); err != nil {
		return 0, err
	}
	for silent := 0; ; {
		if t.broken != nil {
			return 0, t.broken
		}
		behind := t.tree.n
		ack, err := t.send(ctx, p.msg, p.id, uint64(behind))
		switch {
		case err == nil && ack.Sequence == uint64(behind)+1:
			t.add(p.leaf)
			return behind, nil
		case err == nil, isWrongSequence(err):
			if index, err := t.catchUp(ctx, p); index >= 0 || err != nil {
				return index, err
			}
			if t.tree.n == behind { // refused, and yet nothing new: not for ever
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

// isWrongSequence tells a refusal by the expected sequence; a replicated stream
// has a code of its own for it.
func isWrongSequence(err error) bool {
	api := &jetstream.APIError{}
	return errors.As(err, &api) && (api.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequence ||
		api.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequenceConstant)
}

// checkNewest holds p against the newest entry of its resource. What comes
// after this look is seen by catchUp.
func (t *Trail) checkNewest(ctx context.Context, p *publication) error {
	if p.newest == anyEntry {
		return nil
	}
	msg, err := t.entries.GetLastMsgForSubject(ctx, p.msg.Subject)
	switch {
	case errors.Is(err, jetstream.ErrMsgNotFound):
		if p.newest != -1 {
			return ErrConflict
		}
		return nil
	case err != nil:
		return fmt.Errorf("read newest entry: %w", err)
	case int64(msg.Sequence)-1 != p.newest:
		return ErrConflict
	}
	return nil
}

// catchUp adds to the tree what others appended. It returns the index of p
// where that is among it, else -1.
func (t *Trail) catchUp(ctx context.Context, p *publication) (int64, error) {
	info, err := t.entries.Info(ctx)
	if err != nil {
		return -1, fmt.Errorf("read stream state: %w", err)
	}
	if info.State.LastSeq < uint64(t.tree.n) {
		t.broken = fmt.Errorf("%w: entries from %d on are gone", ErrDamaged, info.State.LastSeq)
		return -1, t.broken
	}
	conflict := false
	for seq := uint64(t.tree.n) + 1; seq <= info.State.LastSeq; seq++ {
		msg, record, err := t.readRecord(ctx, int64(seq)-1)
		if err != nil {
			return -1, err
		}
		t.add(leafHash(record))
		if p == nil {
			continue
		}
		if msg.Header.Get(nats.MsgIdHdr) == p.id {
			return int64(seq) - 1, nil // what stands behind it is read the next time
		}
		conflict = conflict || p.newest != anyEntry && msg.Subject == p.msg.Subject && int64(seq)-1 > p.newest
	}
	if conflict {
		return -1, ErrConflict
	}
	return -1, nil
}

// readRecord reads an entry that must be there. Needs the turn.
func (t *Trail) readRecord(ctx context.Context, index int64) (*jetstream.RawStreamMsg, []byte, error) {
	msg, err := t.entries.GetMsg(ctx, uint64(index)+1)
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		t.broken = fmt.Errorf("%w: entry %d is missing", ErrDamaged, index)
		return nil, nil, t.broken
	}
	if err != nil {
		return nil, nil, fmt.Errorf("read entry %d: %w", index, err)
	}
	record, err := t.codec.unpack(msg.Header, msg.Data)
	if err != nil {
		t.broken = fmt.Errorf("%w: entry %d: %w", ErrDamaged, index, err)
		return nil, nil, t.broken
	}
	return msg, record, nil
}

// add grows the tree by an entry that is durable.
func (t *Trail) add(leaf tlog.Hash) {
	t.tree.grow(leaf)
	t.pending = append(t.pending, leaf)
	t.grown()
}
