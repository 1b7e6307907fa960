package audit

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"strings"

	"golang.org/x/mod/sumdb/tlog"
)

// view is a trail for readers without its turn. It is replaced whole.
type view struct {
	failure     error // why the trail cannot be used at present
	generations []Generation
	unsound     []span              // entries without weight
	passed      []span              // and those read from the files: what the log has of them does not count
	copied      map[int64]tlog.Hash // the signed leaves of those
	problems    int
	gaps        []Gap // between heartbeats
}

// viewOf makes a view of an examination.
func viewOf(x *examination) *view {
	v := &view{generations: slices.Clone(x.gens), unsound: unsound(x.report.Problems), problems: len(x.report.Problems), gaps: x.report.Gaps, copied: x.copied}
	v.passed = joined(slices.Concat(v.unsound, spansOf(v.copied)))
	return v
}

// show shows the result of a reading. Needs the turn.
func (t *Trail) show(v *view) {
	v.failure = t.view.Load().failure
	t.view.Store(v)
	t.metrics.damaged.Set(float64(count(v.unsound)))
	t.metrics.problems.Set(float64(v.problems))
	t.metrics.generations.Set(float64(len(v.generations)))
	t.metrics.signed.Set(float64(t.base + t.signed.Len()))
}

// isOpen waits until the trail was tried once, and gives ErrUnavailable while it was not read back.
func (r *Reader) isOpen(ctx context.Context) error {
	select {
	case <-r.tried:
	case <-ctx.Done():
		return fmt.Errorf("wait for the trail: %w", ctx.Err())
	}
	select {
	case <-r.opened:
		return nil
	default:
	}
	return cmp.Or(r.view.Load().failure, ErrUnavailable)
}

// PublicKey verifies the newest generation's checkpoints, in the note form; empty while
// the trail cannot be used.
func (t *Trail) PublicKey() string {
	if g := t.Generations(); len(g) > 0 {
		return g[len(g)-1].PublicKey
	}
	return ""
}

// Generations are the trail's, the oldest first, as of when it was read back.
func (t *Trail) Generations() []Generation { return slices.Clone(t.view.Load().generations) }

// NameOf tells trails with a common origin apart: ORIGIN+HASH of the key of the entry's
// generation.
func (t *Trail) NameOf(index int64) string {
	name := ""
	for _, g := range t.Generations() {
		if its := NameOf(g.PublicKey); its != "" && (g.Base <= index || name == "") {
			name = its
		}
	}
	return name
}

// NameOf is a public key up to its last plus, ORIGIN+HASH. Ids of events begin with it, so it must
// stay as it is, though the base64 of some keys has pluses of its own.
func NameOf(public string) string { return public[:max(strings.LastIndex(public, "+"), 0)] }

// generationOf is the generation of an entry, and the index of the first one after it.
func (v *view) generationOf(index int64) (of Generation, end int64) {
	end = math.MaxInt64
	for i, g := range v.generations {
		switch {
		case g.Base <= index || i == 0:
			of = g
		default:
			return of, g.Base
		}
	}
	return of, end
}

// Remark is a line for people: how the trail is.
func (t *Trail) Remark() string {
	v := t.view.Load()
	switch {
	case v.failure == nil && len(v.generations) == 0:
		return "warning: it is not open yet"
	case v.failure != nil:
		return "warning: " + v.failure.Error() + "; it is tried again"
	case v.problems > 0:
		return fmt.Sprintf("warning: %d entries are damaged or lost, %d problems in all; its entries of the types %s and %s name them",
			count(v.unsound), v.problems, TypeDamaged, TypeGeneration)
	}
	return fmt.Sprintf("%d entries", t.Size())
}
