package audit

import (
	"bytes"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/auditrelay/auditrelay/internal/trail/truth"
)

// The trail's files hold the signed entries a second time. An entry that is lost or damaged
// in the log is read from there, if its leaf is the signed one. Nothing is written back. As
// long as the files have it, nothing is lost; but somebody may have altered the log, so the
// trail names it once.

// TypeRestored names entries that the log lost, and that are read from the files. Its Detail
// is a naming.
const TypeRestored = "trail.restored"

// copied is a run of entries that are read from the files.
type copied struct {
	generation Generation
	from       int64       // index of the first one
	leaves     []tlog.Hash // signed
}

func (c *copied) span() span {
	return span{From: c.from, To: c.from + int64(len(c.leaves)) - 1}
}

// recover seeks the signed entries that the log lacks in the files. Got and want are leaves
// of g, as they are and as signed.
func (x *examination) recover(g Generation, got, want []tlog.Hash) {
	isLost := func(n int64) bool {
		return want[n] != (tlog.Hash{}) && (n >= int64(len(got)) || got[n] != want[n]) && want[n] != lostLeaf(g.Base+n)
	}
	from, to := int64(0), int64(len(want))
	for from < to && !isLost(from) {
		from++
	}
	for to > from && !isLost(to-1) {
		to--
	}
	if x.files == nil || from == to {
		return
	}
	_ = x.files.Records(g.Origin, from, to, func(n int64, record []byte) error { // what cannot be read stays lost
		if !isLost(n) || leafHash(record) != want[n] {
			return nil
		}
		index := g.Base + n
		if e, err := decodeRecord(record, index); err == nil {
			x.take(&e)
		}
		if last := len(x.copied) - 1; last >= 0 && x.copied[last].span().To == index-1 && x.copied[last].generation.Base == g.Base {
			x.copied[last].leaves = append(x.copied[last].leaves, want[n])
		} else {
			x.copied = append(x.copied, copied{g, index, []tlog.Hash{want[n]}})
		}
		return nil
	})
}

// setApart takes the restored entries out of the problems.
func (x *examination) setApart() {
	for i := range x.copied {
		run := x.copied[i].span()
		x.report.Restored = append(x.report.Restored, truth.Finding{
			Kind: truth.Restored, From: run.From, To: run.To, Detail: "lost or damaged in the log, and read from the entry bundles, as the signed root proves",
		})
		var left []truth.Finding
		for _, p := range x.report.Problems {
			if isOfEntries(p) {
				left = append(left, otherThan(p, run)...)
			} else {
				left = append(left, p)
			}
		}
		x.report.Problems = left
	}
}

// isOfEntries reports whether From and To are indexes of entries without weight.
func isOfEntries(p truth.Finding) bool { return kindOf(p) == ofEntries && p.Kind != truth.Unproven }

// fromFiles gives the entries in [from, to) that the log has lost and the files have, in order. If
// one is gone from the files too, the trail is read back.
func (r *Reader) fromFiles(from, to int64, handle func(Recorded) error) error {
	copies := r.view.Load().copied
	for i := range copies {
		run := &copies[i]
		g, at := run.generation, run.span()
		first, end := max(from, at.From), min(to, at.To+1)
		if first >= end {
			continue
		}
		missing := end - first
		err := r.files.Records(g.Origin, first-g.Base, end-g.Base, func(n int64, record []byte) error {
			index := g.Base + n
			leaf := run.leaves[index-at.From]
			e, err := decodeRecord(record, index)
			if err != nil || leafHash(record) != leaf {
				return nil //nolint:nilerr // it is lost
			}
			missing--
			return handle(Recorded{Entry: e, Record: bytes.Clone(record), Leaf: leaf})
		})
		if err != nil {
			return err
		}
		if missing > 0 {
			r.suspect("an entry that was read from the entry bundles is lost there too")
		}
	}
	return nil
}

// copyOf is an entry that the log has lost and the files have.
func (r *Reader) copyOf(index int64) (e Recorded, found bool) {
	_ = r.fromFiles(index, index+1, func(c Recorded) error { // which is no error
		e, found = c, true
		return nil
	})
	return e, found
}
