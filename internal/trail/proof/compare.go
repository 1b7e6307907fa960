package proof

import (
	"fmt"

	"golang.org/x/mod/sumdb/tlog"
)

// Run is a run of a log's entries: the hashes of their leaves as they are, and as signed. A zero
// hash in Got stands for a missing entry; in Signed for one under no signed root.
type Run struct {
	First       int64
	Got, Signed []tlog.Hash
}

// emptyLeaf is an entry without a byte, in the place of a lost one.
var emptyLeaf = tlog.RecordHash(nil)

// CompareRuns tells the fate of each entry unlike the signed one, in order.
func CompareRuns(parts []Run, tell func(index int64, kind, detail string)) {
	var there, signed map[tlog.Hash]int64
	for _, p := range parts {
		for i, want := range p.Signed {
			if want == (tlog.Hash{}) || i < len(p.Got) && p.Got[i] == want {
				continue
			}
			if there == nil { // only where something is wrong
				there, signed = places(parts)
			}
			kind, detail := p.fate(i, there, signed)
			tell(p.First+int64(i), kind, detail)
		}
	}
}

// fate tells the fate of entry i of the part.
func (p *Run) fate(i int, there, signed map[tlog.Hash]int64) (kind, detail string) {
	if at, found := there[p.Signed[i]]; found {
		return KindMoved, fmt.Sprintf("it stands %+d places off", at-p.First-int64(i))
	}
	if i >= len(p.Got) {
		return KindTruncated, "the trail ends before it"
	}
	if p.Got[i] == (tlog.Hash{}) || p.Got[i] == emptyLeaf {
		return KindMissing, "nothing stands there"
	}
	if _, known := signed[p.Got[i]]; known {
		return KindMissing, "it is nowhere, and another entry stands in its place"
	}
	return KindAltered, "it does not have the hash that was signed"
}

// places are where leaves stand, and where they should.
func places(parts []Run) (there, signed map[tlog.Hash]int64) {
	there, signed = map[tlog.Hash]int64{}, map[tlog.Hash]int64{}
	for _, p := range parts {
		for i, h := range p.Got {
			there[h] = p.First + int64(i)
		}
		for i, h := range p.Signed {
			signed[h] = p.First + int64(i)
		}
	}
	delete(there, tlog.Hash{})
	return there, signed
}
