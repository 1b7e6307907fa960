package cluster

import (
	"context"
	"errors"
	"math"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/auditrelay/auditrelay/internal/retry"
	"github.com/auditrelay/auditrelay/internal/store"
)

// doubt recognises a table that lost its end, by the newest revision that is known. Table.mu
// guards it.
type doubt struct {
	note   *noteFile
	newest uint64 // the newest known revision
	// meta says which messages have which revisions. Its turn, if there is one, begins with the first
	// revision that was given out after the newest loss: values of earlier ones, and keys without any,
	// are doubtful. Its shift grows by what was lost, so that the note only ever grows.
	meta   meta
	losses int // how many this process noticed
}

// known is what is known of the table at present.
func (t *Table) known() *doubt {
	t.mu.Lock()
	defer t.mu.Unlock()
	d := t.doubt
	return &d
}

// revision is that of the message at a sequence. It is larger than every revision that was
// given out before the loss, so that revisions grow with each write, and that nobody's condition
// on a lost value holds for another one.
func (d *doubt) revision(seq uint64) uint64 {
	rev, _ := d.meta.pos(seq)
	return uint64(rev)
}

// sequence is where the message of a revision stands, or noSequence if it was lost.
func (d *doubt) sequence(rev uint64) uint64 {
	at := d.meta.find(store.Pos(rev))
	if rev > 0 && at.lost != "" {
		return noSequence
	}
	return at.seq // 0 for a key without a value
}

const noSequence = math.MaxInt64

// wrote notes a revision for the next process. A crash before the note leaves an older one,
// which may not show a loss of the newest values.
func (t *Table) wrote(rev uint64) {
	t.mu.Lock()
	t.doubt.newest = max(t.doubt.newest, rev)
	t.mu.Unlock()
	t.keepNote()
}

func (t *Table) keepNote() {
	d := t.known()
	if err := d.note.write(note{URL: t.store.cfg.Journal.URL, Newest: spot{Pos: store.Pos(d.newest)}, Meta: d.meta}); err != nil {
		t.store.log.Warn("noting the newest revision of the table failed", "error", err)
	}
}

// isDoubtful says whether a newer value of a key may have been lost whose message stands at a
// sequence; 0 if there is none.
func (d *doubt) isDoubtful(seq uint64) bool {
	return len(d.meta.Turns) > 0 && seq < d.meta.last().Seq
}

// resume takes over the note of an earlier process, and compares the table with it.
func (t *Table) resume(ctx context.Context, info *jetstream.StreamInfo) (err error) {
	var kept note
	if t.doubt.note, kept, err = t.store.openNote("table"); err != nil {
		return err
	}
	t.doubt.meta.Created = info.Created.UnixNano()
	if kept.URL == t.store.cfg.Journal.URL { // with another one, the table may be another by intent
		t.doubt.meta, t.doubt.newest = kept.Meta, uint64(kept.Newest.Pos)
	}
	if err := t.compare(ctx); err != nil {
		return errors.Join(err, t.doubt.note.close())
	}
	return nil
}

// compare looks whether the cluster lost the newest values. The leader of a replicated
// stream has to insist, as a new or a deposed one may lack them for a while.
func (t *Table) compare(ctx context.Context) error {
	for until := time.Now().Add(t.store.certainty); ; {
		d := t.known()
		info, err := t.store.info(ctx, t.stream)
		if err != nil {
			return err
		}
		made, last := info.Created.UnixNano(), info.State.LastSeq
		switch {
		case made == d.meta.Created && uint64(d.meta.end(last)) >= d.newest:
			return nil
		case info.Config.Replicas < 2 || time.Now().After(until) && leads(info):
			t.store.log.Error("the cluster lost the newest values of the table; those that are left are in doubt until they are written again",
				"stream", t.stream, "newest", last)
			t.mu.Lock()
			t.doubt.meta = meta{Created: made, Turns: []turn{{After: store.Pos(last), Seq: last + 1, Shift: max(d.newest, last) - last}}}
			t.doubt.losses++
			t.mu.Unlock()
			t.keepNote()
			return nil
		}
		if err := retry.Sleep(ctx, certaintyPause); err != nil {
			return err
		}
	}
}
