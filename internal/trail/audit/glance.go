package audit

import (
	"cmp"
	"context"
	"slices"
	"time"

	"golang.org/x/mod/sumdb/tlog"
)

// A start does not wait until all of the trail is checked. It hashes the entries: if they give
// the root of the newest checkpoint, they are the signed ones. The older checkpoints, and what no
// hash covers, are read in the background, and damage is named then as a whole reading at the
// start would name it.

const (
	// paceEvery and pacePause bound the reading in the background, to some 20,000
	// records a second.
	paceEvery = 1000
	pacePause = 50 * time.Millisecond
)

// ownResource is the resource of the trail's entries about itself.
var ownResource = resource(OwnProject, "", ownSubject)

// glance examines the entries by their hashes, against the newest checkpoint. It gives nil where
// anything is not as a clean stop or a kill leaves it, or where the trail names damaged entries.
func (r *examiner) glance(ctx context.Context) *examination {
	x, err := r.begin(ctx)
	if err != nil {
		return nil
	}
	c, err := r.newestKept(ctx)
	if err != nil || c == nil || x.beyond(c) != "" || !r.key.isOwn(c.PublicKey) {
		return nil
	}
	x.keptSeq = c.Seq
	x.kept(*c)
	r.quick = true
	if r.readLeaves(ctx, x) != nil || !x.continues(c) || !x.chain(c) || len(x.named.runs[ofEntries]) > 0 {
		return nil
	}
	r.readPin(x)
	r.holdAgainstNotes(x)
	if len(x.report.Problems) > 0 || !x.isPinned(c.Base, x.signed) {
		return nil
	}
	return x
}

// newestKept is the last record of the log of checkpoints; nil where there is none, or not a good one.
func (r *examiner) newestKept(ctx context.Context) (*Kept, error) {
	state, err := r.checkpoints.State(ctx)
	if err != nil {
		return nil, err
	}
	return r.keptAt(ctx, uint64(state.End))
}

// continues reports whether all entries are there, and those of the newest generation are the ones
// under its newest checkpoint.
func (x *examination) continues(c *Kept) bool {
	x.end = c.Size
	if c.Base+c.Size > int64(len(x.leaves)) || slices.Contains(x.leaves, tlog.Hash{}) {
		return false
	}
	x.signed = tree{}.With(x.leaves[c.Base : c.Base+c.Size]...)
	return x.signed.Root() == c.Root
}

// chain takes the generations from the entries that open them, up to a checkpoint's. It reports
// whether the entries before that one are the ones that it has followed: the entry that opens a
// generation has the hash of all entries before it.
func (x *examination) chain(c *Kept) bool {
	x.gens = []Generation{{Base: c.Base, Origin: c.Origin, PublicKey: c.PublicKey, Size: c.Size, Root: c.Root}}
	for g := x.gens[0]; g.Base > 0; g = x.gens[0] {
		o := x.openings[g.Base]
		if o.Key != g.PublicKey || o.Previous == nil || o.Previous.Base >= g.Base || o.Found.Root != (tree{}).With(x.leaves[:g.Base]...).Root() {
			return false
		}
		x.gens = slices.Insert(x.gens, 0, *o.Previous)
	}
	x.endorse()
	return true
}

// readBack reads all of a trail that was opened after a glance, at a bounded rate, and has damage
// named.
func (t *Trail) readBack(ctx context.Context) {
	defer close(t.read)
	select {
	case <-ctx.Done():
		return
	case <-t.opened:
	}
	if !t.glanced || t.lock(ctx) != nil {
		return
	}
	r := t.examiner()
	t.unlock()
	r.paced = true
	x, err := r.examine(ctx)
	switch {
	case ctx.Err() != nil:
	case err != nil:
		t.log.Warn("the audit trail cannot be read back; the next start tries it again", "error", err)
	case t.lock(ctx) == nil:
		t.compare(x)
		t.unlock()
	}
}

// compare has a trail read back where a whole reading found what the glance did not. Else it shows
// what was found. Needs the turn.
func (t *Trail) compare(x *examination) {
	shown := *t.view.Load()
	same := slices.EqualFunc(x.gens, shown.generations, func(a, b Generation) bool {
		return a.Base == b.Base && a.Origin == b.Origin && a.PublicKey == b.PublicKey
	})
	news := x.named.unnamed(x.report.Problems)
	if len(news) > 0 || len(x.copied) > 0 || !same || !slices.Equal(unsound(x.report.Problems), shown.unsound) {
		t.suspect(cmp.Or(spellOut(news), "it is not what the newest checkpoint says"))
		return
	}
	shown.gaps, shown.problems = x.report.Gaps, len(x.report.Problems)
	t.show(&shown)
}
