package audit

import (
	"cmp"
	"context"
	"encoding/hex"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/auditrelay/auditrelay/internal/store"
	"github.com/auditrelay/auditrelay/internal/store/durable"
	tlogproof "github.com/auditrelay/auditrelay/internal/trail/proof"
)

// restore reads the trail back, names the damage, and goes on at the trail's end. It
// can be repeated: the next one goes on from the state left by a crash on any line.
//
// A damaged signed entry keeps its leaf hash from the checkpoints, so the tree goes on.
// A damaged unsigned one gets the leaf of a lost entry. Only where the signed tree
// itself cannot be known a new generation begins.
func (t *Trail) restore(ctx context.Context) error {
	x := &examination{Reader: t.Reader, options: t.options, key: t.key, pinExpected: t.hasWritten(), marked: t.marked, still: !t.options.Shared}
	if err := x.examine(ctx); err != nil {
		return err
	}
	end := x.foreignEnd(x.knownEnd())
	reason, err := t.breaks(x, end)
	if err != nil {
		return err
	}
	if err := t.keepPlaces(ctx, int64(len(x.leaves)), end); err != nil {
		return err
	}
	x.placesKept(end)
	if err := t.salvagePin(x); err != nil {
		return err
	}
	t.known.set(x.newest, x.asSigned(), x.gens[len(x.gens)-1].Base, x.signed)
	if t.keptSeq != x.keptSeq { // another relay has signed, perhaps the end of its heartbeats
		t.keptSeq, t.beat.running = x.keptSeq, false
	}
	if reason == "" {
		err = t.goOn(x)
	} else {
		err = t.begin(ctx, x, end, reason)
	}
	if err != nil {
		return err
	}
	if err := t.name(ctx, TypeDamaged, x.named.unnamed(x.report.Problems)); err != nil {
		return err
	}
	if err := t.name(ctx, TypeRestored, x.named.unnamed(x.report.Restored)); err != nil {
		return err
	}
	t.keyLoss = ""
	t.offer()
	t.show(viewOf(x))
	t.grown()
	// The pin's problem is named and durable now. Another reading, with another checkpoint kept, would name it
	// once more. Where the pin cannot be written, whoever signs tries it again, and says why.
	if t.keepPin() != nil || t.signed.Len() > 0 && t.beat.due(false) {
		nudge(t.grew)
	}
	return nil
}

// goOn continues the newest generation with its key.
func (t *Trail) goOn(x *examination) (err error) {
	last := x.gens[len(x.gens)-1]
	if t.key, err = t.fileKey.Load().named(cmp.Or(last.Origin, t.fileKey.Load().Name())); err != nil {
		return err
	}
	t.base, t.signed, t.newestNote = last.Base, x.signed, nil
	pinned := x.pin != nil && x.pin.Base == last.Base && x.pin.Size == last.Size && x.pin.Root == last.Root
	switch {
	case pinned: // perhaps with the signatures of witnesses
		t.newestNote = []byte(x.pin.Note)
	case x.best != nil:
		t.newestNote = []byte(x.best.Note)
	}
	t.pinDue = last.Size > 0 && (!t.marked || !pinned)
	return nil
}

// knownEnd is how many entries there were at least.
func (x *examination) knownEnd() int64 {
	end := max(int64(len(x.leaves)), x.covered())
	if x.pin != nil {
		end = max(end, x.pin.Base+x.pin.Size)
	}
	if x.forwarded != nil {
		end = max(end, x.forwarded.Index+1)
	}
	return end
}

// lastEntry is the index of the newest entry, -1 for none. After it there may be kept places
// (see keepPlaces): a crash left them before a new generation began.
func (x *examination) lastEntry() int64 {
	last := int64(len(x.leaves)) - 1
	for last >= 0 && x.leaves[last] == (tlog.Hash{}) {
		last--
	}
	return last
}

// asSigned are the leaves of all entries: the signed ones, zero where they are not known, and the
// others as they are.
func (x *examination) asSigned() []tlog.Hash {
	leaves := slices.Clone(x.leaves)
	for index, leaf := range leaves {
		if leaf == (tlog.Hash{}) {
			leaves[index] = lostLeaf(int64(index))
		}
	}
	for i, g := range x.gens {
		copy(leaves[min(g.Base, int64(len(leaves))):], x.proven[i])
	}
	return leaves
}

// breaks says why the newest tree cannot be continued, "" where it can. The error
// is for two relays with different keys: were each to begin again whenever it sees
// the other, there would be no end to it.
func (t *Trail) breaks(x *examination, end int64) (string, error) {
	last := x.gens[len(x.gens)-1]
	evidence := end > 0 || x.keptSeq > 0 || x.pinText != nil
	foreign := last.PublicKey != "" && !t.fileKey.Load().isOwn(last.PublicKey)
	begun := t.fileKey.Load().isOwn(x.openings[last.Base].Key) // perhaps nobody heard of it
	switch {
	case foreign && x.rotations.to(t.fileKey.Load().public, last, unsound(x.report.Problems)):
		return wasRotated, nil
	case t.keyLoss != "" && evidence && !begun:
		return t.keyLoss, nil
	case foreign && t.restored:
		return "", fmt.Errorf("%w: it is signed with the key %s, not with this relay's: let all relays of the trail share one key_file, and start this one again", ErrUnavailable, last.PublicKey)
	case foreign:
		return "the signing key is not the one that signed before", nil
	case x.end > x.signed.Len():
		return fmt.Sprintf("entries from %d on were signed, and are lost together with their hashes", last.Base+x.signed.Len()), nil
	case x.contradictsForwarded():
		return fmt.Sprintf("entries from %d on are lost, and %s roots over them", x.lastEntry()+1, x.given), nil
	case x.endsBeforeForeign(end):
		return "tlog/ has later entries, signed with a key unknown to this trail", nil
	case x.lostTail(end) && x.keptSeq > x.goodSeq:
		return fmt.Sprintf("entries from %d on are lost, and so are checkpoints that may have signed them", last.Base+x.signed.Len()), nil
	case t.marked && len(x.history) == 0 && x.pin == nil && !begun:
		return "nothing is left of all that the key has signed: the trail, or its checkpoints, are lost", nil
	}
	return "", nil
}

// lostTail reports whether entries after the newest checkpoint are lost.
func (x *examination) lostTail(end int64) bool {
	from, there := x.gens[len(x.gens)-1].Base+x.signed.Len(), int64(len(x.leaves))
	return end > max(there, from) || from < there && slices.Contains(x.leaves[from:], tlog.Hash{})
}

// begin opens a new generation at base, with an entry to name the old one.
func (t *Trail) begin(ctx context.Context, x *examination, base int64, reason string) error {
	key, err := t.fileKey.Load().named(tlogproof.OriginOf(t.fileKey.Load().Name(), base, time.Now()))
	if err != nil {
		return err
	}
	t.key, t.base, t.signed, t.newestNote, t.pinDue = key, base, tree{}, nil, false
	t.beat.running = false // the first checkpoint of a generation promises the next
	o := Opening{Reason: reason, Key: key.public, Found: found{base, tree{}.With(x.leaves...).Root()}}
	if x.knownEnd() > 0 || x.keptSeq > 0 {
		o.Previous = &x.gens[len(x.gens)-1]
	}
	if n := len(x.history); n > 0 {
		o.Checkpoint = x.history[n-1].Note
	}
	if x.pin != nil || o.Checkpoint == "" {
		o.Checkpoint = string(x.pinText)
	}
	problems := x.named.unnamed(x.report.Problems)
	o.naming = t.naming(problems[:min(len(problems), maxProblems)])
	t.log.Error("the audit trail begins a new generation; its first entry names the old one", "reason", reason,
		"first_entry", base, "public_key", key.public)
	a, err := t.ownAddition(TypeGeneration, o)
	if err != nil {
		return err
	}
	// It stands at base or nowhere, as its key is named after that. After a refusal, and after a crash
	// here, the trail is read back, and finds whether it stands there.
	if _, err := t.entries.AppendAt(ctx, store.Pos(base), a.draft); err != nil {
		return fmt.Errorf("append %s: %w", TypeGeneration, err)
	}
	t.add(a.draft.Key, a.leaf)
	x.named.add(o.Problems)
	x.gens = append(x.gens, Generation{Base: base, Origin: key.Name(), PublicKey: key.public})
	x.endorse()
	return nil
}

// name puts problems into the trail, in entries of a type.
func (t *Trail) name(ctx context.Context, kind string, problems []tlogproof.Finding) error {
	for some := range slices.Chunk(problems, maxProblems) {
		t.log.Error("the audit trail is damaged; it goes on, and says so in an entry", "type", kind, "problems", spellOut(some), "salvage", t.options.SalvageDir)
		if err := t.appendOwn(ctx, kind, t.naming(some)); err != nil {
			return err
		}
		t.metrics.named.Add(float64(len(some)))
	}
	return nil
}

func (t *Trail) naming(problems []tlogproof.Finding) naming {
	n := naming{Problems: problems}
	if len(problems) > 0 && t.options.SalvageDir != "" {
		n.Salvage = filepath.Base(t.options.SalvageDir)
	}
	return n
}

// appendOwn appends an entry about the trail itself. Needs the turn.
func (t *Trail) appendOwn(ctx context.Context, kind string, detail any) error {
	a, err := t.ownAddition(kind, detail)
	if err == nil {
		if err = t.place(ctx, []*addition{a}, t.next()); err == nil {
			err = a.err
		}
	}
	if err != nil {
		return fmt.Errorf("append %s: %w", kind, err)
	}
	return nil
}

// lostBatch is how many places are kept by one append.
const lostBatch = 4096

// keepPlaces keeps the places of entries that are gone from the end, so that no other entry
// gets their index: sinks may have theirs. A crash leaves some of them, and the next start
// goes on.
func (t *Trail) keepPlaces(ctx context.Context, from, end int64) error {
	for from < end {
		lost := slices.Repeat([]store.Draft{{Kind: kindLost}}, int(min(end-from, lostBatch)))
		if _, err := t.entries.AppendAt(ctx, store.Pos(from), lost...); err != nil {
			return fmt.Errorf("keep the places of lost entries from %d on: %w", from, err)
		}
		from += int64(len(lost))
	}
	return nil
}

// placesKept takes in the places up to end, which stand empty now, and names those that no other problem names, and
// whose entries the files do not have.
func (x *examination) placesKept(end int64) {
	if from := int64(len(x.leaves)); from < end {
		said := namedDamage{}
		said.add(x.report.Problems)
		kept := tlogproof.Finding{Kind: tlogproof.KindMissing, From: from, To: end - 1, Detail: neverSigned}
		x.report.Problems = append(x.report.Problems, otherThan(kept, slices.Concat(said[ofEntries], spansOf(x.copied))...)...)
		x.extend(end)
	}
}

// salvagePin copies the checkpoint next to the key before the next one replaces it, if
// it says more than the trail does, or cannot be read.
func (t *Trail) salvagePin(x *examination) error {
	if slices.ContainsFunc(x.report.Problems, func(p tlogproof.Finding) bool {
		return p.Kind == tlogproof.KindPin || p.Kind == tlogproof.KindTruncated
	}) {
		return t.salvage(t.options.pinFile(), x.pinText)
	}
	return nil
}

// salvage keeps a copy of a file's content; the same content is kept once.
func (t *Trail) salvage(file string, content []byte) error {
	if t.options.SalvageDir == "" || content == nil {
		return nil
	}
	sum := tlog.RecordHash(content)
	to := filepath.Join(t.options.SalvageDir, filepath.Base(file)+"."+hex.EncodeToString(sum[:6]))
	err := durable.MakeDir(t.options.SalvageDir)
	if err == nil {
		err = durable.WriteFile(to, content)
	}
	if err != nil {
		return fmt.Errorf("keep a copy of %s: %w", file, err)
	}
	return nil
}
