package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/auditrelay/auditrelay/internal/retry"
	"github.com/auditrelay/auditrelay/internal/store"
	"github.com/auditrelay/auditrelay/internal/store/durable"
)

const (
	// certainty is how long the leader of a replicated stream has to insist on an earlier end, since a
	// new leader may lack the newest records for a while, and in contact with the other servers: see leads.
	certainty = 5 * time.Second
	// certaintyPause is the wait between two looks.
	certaintyPause = 500 * time.Millisecond
)

// ErrReplaced means that another stream has the name of a log than the one that was opened.
var ErrReplaced = errors.New("the stream of a log was taken away, or made again, while the relay ran")

// compare looks whether the cluster lost the end of the log, and begins a new turn if it
// did. A crash before the turn is in the table leaves the same finding.
func (l *Log) compare(ctx context.Context) error {
	l.comparing.Lock()
	defer l.comparing.Unlock()
	for until := time.Now().Add(l.store.certainty); ; {
		if err := l.refresh(ctx); err != nil { // another relay may have noticed it first
			return err
		}
		newest, doubted := l.known.suspects() // before the stream's end, since appends go on meanwhile
		info, err := l.store.info(ctx, l.stream)
		if err != nil && !errors.Is(err, jetstream.ErrStreamNotFound) {
			return err
		}
		late := time.Now().After(until)
		if err != nil || info.Created.UnixNano() != l.meta().Created {
			if late || err == nil {
				return l.replacedMeanwhile()
			}
		} else {
			back, err := l.wentBack(ctx, info, newest, doubted)
			if err != nil {
				return err
			}
			if !back {
				l.known.settle()
				return nil
			}
			if info.Config.Replicas < 2 || late && leads(info) {
				return l.goBack(ctx, info, newest)
			}
		}
		if err := retry.Sleep(ctx, certaintyPause); err != nil {
			return err
		}
	}
}

// leads reports whether the leader that gave an answer has heard from a majority of the stream's servers
// in a time that is too short for it to be deposed. One that is cut off answers as it knew the stream,
// for 10 to 20 s: lostQuorumInterval and lostQuorumCheck in nats-server.
func leads(info *jetstream.StreamInfo) bool {
	if info.Cluster == nil {
		return false
	}
	heard := 1 // from itself
	for _, server := range info.Cluster.Replicas {
		if server.Active > 0 && server.Active < certainty { // 0: never
			heard++
		}
	}
	return 2*heard > info.Config.Replicas
}

// replacedMeanwhile ends the relay: the next start makes the stream if it is missing, and
// goes on after the positions of the old one.
func (l *Log) replacedMeanwhile() error {
	err := fmt.Errorf("%w: the next start goes on with stream %s as it is, and names the lost records", ErrReplaced, l.stream)
	l.store.log.Error("the store failed", "error", err)
	if l.store.cfg.Failed != nil {
		l.store.cfg.Failed(err)
	}
	return err
}

// wentBack says whether the stream lacks what is known to have stood there.
func (l *Log) wentBack(ctx context.Context, info *jetstream.StreamInfo, newest, doubted spot) (bool, error) {
	if _, ahead := l.known.isAhead(); ahead || l.meta().end(info.State.LastSeq) < newest.Pos {
		return true, nil
	}
	for _, s := range []spot{newest, doubted} {
		if another, err := l.isAnother(ctx, info, s); another || err != nil {
			return another, err
		}
	}
	return false, nil
}

// isAnother says whether another record stands at a place than the known one. One that was
// trimmed, or is damaged, is not another.
func (l *Log) isAnother(ctx context.Context, info *jetstream.StreamInfo, s spot) (bool, error) {
	at := l.meta().find(s.Pos)
	if s.Pos == 0 || s.Nonce == 0 || at.lost != "" || at.seq < info.State.FirstSeq {
		return false, nil
	}
	if at.seq > info.State.LastSeq {
		return true, nil
	}
	got, err := l.store.next(ctx, l.stream, at.seq)
	if errors.Is(err, errMissing) {
		return false, nil
	}
	if err != nil || got.Seq != at.seq {
		return false, err
	}
	f, err := decode(l.stream, got.Data)
	return err == nil && f.nonce != s.Nonce, nil
}

// goBack begins a turn after the newest record that is still there, with the first message after
// that: another relay, which did not know what was lost, may have had it acknowledged. Where
// several relays go back at once, the first one's turn counts.
//
// The turn begins after all positions that a relay knows. So a sink's position is either that of a
// record which stays, or in the gap, and nothing in the turn is passed over.
func (l *Log) goBack(ctx context.Context, info *jetstream.StreamInfo, newest spot) error {
	was := l.meta()
	stays, err := l.stays(ctx, info)
	if err != nil {
		return err
	}
	told, err := l.loadEnd(ctx) // another relay may know of more
	if err != nil {
		return err
	}
	end := max(newest.Pos, was.end(info.State.LastSeq))
	if told.Meta.ID == was.ID {
		end = max(end, told.Newest.Pos)
	}
	l.store.log.Error("the cluster lost the end of a log; the lost positions are named, and the log goes on after them",
		"log", l.name, "stream", l.stream, "lost_from", stays+1, "lost_to", end)
	l.store.rewinds.Inc()
	err = l.changeMeta(ctx, func(m *meta) {
		if m.last() == was.last() {
			m.rewind(stays, end, was.after(stays))
		}
	})
	if err != nil {
		return fmt.Errorf("note what the cluster lost of the log %s: %w", l.name, err)
	}
	return nil
}

// stays is the newest position that still has its record, as all known ones before it have. All known
// places are asked for, as another relay's newer records may stand after a lost one. Where this relay
// has counted on while another one began a turn, it is the newest position that both count alike.
func (l *Log) stays(ctx context.Context, info *jetstream.StreamInfo) (store.Pos, error) {
	if agreed, ahead := l.known.isAhead(); ahead {
		return agreed, nil
	}
	end := l.meta().reach(info.State.LastSeq)
	all := l.known.spots(end)
	lost := make([]bool, len(all))
	err := durable.SideBySide(len(all), func(i int) (err error) {
		lost[i], err = l.isAnother(ctx, info, all[i])
		return err
	})
	if err != nil {
		return 0, err
	}
	switch first := slices.Index(lost, true); first {
	case -1:
		return end, nil
	case 0:
		return min(end, all[0].Pos-1), nil
	default:
		return all[first-1].Pos, nil
	}
}

// become puts a newer meta in the place of one. It reports false if another goroutine has replaced
// that. After a loss, whoever has noticed it, this relay starts over with what it knows about the
// log, unless it knows newer positions than the turn counts as lost: then the next comparison begins
// another turn. A crash before the note leaves one whose position is in the gap, or beyond it; or one
// that does not know of a trim, which the table does.
func (l *Log) become(was, now *meta) (bool, error) {
	now.Trimmed = max(now.Trimmed, was.Trimmed) // the table may have lost a later one
	l.known.mu.Lock()
	swapped, turn := l.current.CompareAndSwap(was, now), now.last()
	begun := swapped && turn != was.last() && l.known.follow(turn, now.agrees(was))
	newest := l.known.newest
	l.known.mu.Unlock()
	switch {
	case begun:
		l.tail.reach(newest.Pos)
		return true, l.remember(newest)
	case swapped && turn == was.last() && now.Trimmed > was.Trimmed:
		return true, l.note.write(l.noteOf(newest))
	}
	return swapped, nil
}
