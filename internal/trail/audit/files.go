package audit

import (
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
	for i, leaf := range want {
		index := g.Base + int64(i)
		if x.files == nil || leaf == (tlog.Hash{}) || i < len(got) && got[i] == leaf || leaf == lostLeaf(index) {
			continue
		}
		record, err := x.files.Record(g.Origin, int64(i))
		if err != nil || leafHash(record) != leaf {
			continue
		}
		if e, err := decodeRecord(record, index); err == nil {
			x.take(&e)
		}
		if n := len(x.copied); n > 0 && x.copied[n-1].span().To == index-1 && x.copied[n-1].generation.Base == g.Base {
			x.copied[n-1].leaves = append(x.copied[n-1].leaves, leaf)
			continue
		}
		x.copied = append(x.copied, copied{g, index, []tlog.Hash{leaf}})
	}
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

// copyOf is the run with an entry that is read from the files.
func (v *view) copyOf(index int64) (*copied, bool) {
	for i := range v.copied {
		if run := v.copied[i].span(); run.From <= index && index <= run.To {
			return &v.copied[i], true
		}
	}
	return nil, false
}

// fromFiles reads an entry that the log has lost. If it is gone from the files too, the trail
// is read back.
func (r *Reader) fromFiles(index int64) (Recorded, bool) {
	run, listed := r.view.Load().copyOf(index)
	if !listed {
		return Recorded{}, false
	}
	leaf := run.leaves[index-run.from]
	record, err := r.files.Record(run.generation.Origin, index-run.generation.Base)
	if err != nil || leafHash(record) != leaf {
		r.suspect("an entry that was read from the entry bundles is lost there too")
		return Recorded{}, false
	}
	e, err := decodeRecord(record, index)
	return Recorded{Entry: e, Record: record, Leaf: leaf}, err == nil
}

// fromFilesBetween gives the entries in [from, to) that are read from the files, in order.
func (r *Reader) fromFilesBetween(from, to int64, handle func(Recorded) error) error {
	for _, run := range r.view.Load().copied {
		at := run.span()
		for index := max(from, at.From); index < to && index <= at.To; index++ {
			if e, ok := r.fromFiles(index); ok {
				if err := handle(e); err != nil {
					return err
				}
			}
		}
	}
	return nil
}
