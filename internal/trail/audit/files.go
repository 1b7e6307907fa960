package audit

import (
	"bytes"
	"slices"

	"golang.org/x/mod/sumdb/tlog"

	tlogproof "github.com/auditrelay/auditrelay/internal/trail/proof"
)

// The trail's files hold the signed entries a second time. An entry that is lost or damaged
// in the log is read from there, if its leaf is the signed one. Nothing is written back. As
// long as the files have it, nothing is lost; but somebody may have altered the log, so the
// trail names it once.

// TypeRestored names entries that the log lost, and that are read from the files. Its Detail
// is a naming.
const TypeRestored = "trail.restored"

// recover seeks the signed entries that the log lacks in the files. Got and want are leaves
// of g, as they are and as signed.
func (x *examination) recover(g Generation, got, want []tlog.Hash) {
	var lost []int64
	for n, leaf := range want {
		if (n >= len(got) || got[n] != leaf) && leaf != (tlog.Hash{}) && leaf != lostLeaf(g.Base+int64(n)) {
			lost = append(lost, int64(n))
		}
	}
	if x.options.Files == nil || len(lost) == 0 {
		return
	}
	_ = x.options.Files.Records(g.Origin, lost[0], lost[len(lost)-1]+1, func(n int64, record []byte) error { // what cannot be read stays lost
		_, isLost := slices.BinarySearch(lost, n)
		if !isLost || leafHash(record) != want[n] {
			return nil
		}
		if e, err := decodeRecord(record, g.Base+n); err == nil {
			x.take(&e)
		}
		x.copied[g.Base+n] = want[n]
		return nil
	})
}

// setApart takes the restored entries out of the problems.
func (x *examination) setApart() {
	runs := spansOf(x.copied)
	for _, run := range runs {
		x.report.Restored = append(x.report.Restored, tlogproof.Finding{
			Kind: tlogproof.KindRestored, From: run.From, To: run.To, Detail: "lost or damaged in the log, and read from the entry bundles, as the signed root proves",
		})
	}
	var left []tlogproof.Finding
	for _, p := range x.report.Problems {
		if isOfEntries(p) {
			left = append(left, otherThan(p, runs...)...)
		} else {
			left = append(left, p)
		}
	}
	x.report.Problems = left
}

// isOfEntries reports whether From and To are indexes of entries without weight.
func isOfEntries(p tlogproof.Finding) bool {
	return kindOf(p) == ofEntries && p.Kind != tlogproof.KindUnproven
}

// fromFiles gives the entries in [from, to) that the log has lost and the files have, in order. If
// one is gone from the files too, or all files are, the trail is read back.
func (r *Reader) fromFiles(from, to int64, handle func(Recorded) error) error {
	v, missing := r.view.Load(), 0
	for index := from; index < to && len(v.copied) > 0; index++ {
		if _, copied := v.copied[index]; copied {
			missing++
		}
	}
	var failed error // of handle
	for from < to && missing > 0 {
		g, end := v.generationOf(from)
		_ = r.files.Records(g.Origin, from-g.Base, min(end, to)-g.Base, func(n int64, record []byte) error {
			index := g.Base + n
			leaf, copied := v.copied[index]
			e, err := decodeRecord(record, index)
			if !copied || err != nil || leafHash(record) != leaf {
				return nil //nolint:nilerr // it is lost
			}
			missing--
			failed = handle(Recorded{Entry: e, Record: bytes.Clone(record), Leaf: leaf})
			return failed
		})
		if failed != nil {
			return failed
		}
		from = end
	}
	if missing > 0 {
		r.suspect("an entry that was read from the entry bundles is lost there too")
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
