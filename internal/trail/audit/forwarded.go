package audit

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strconv"
	"sync"

	"github.com/cespare/xxhash/v2"

	tlogproof "github.com/auditrelay/auditrelay/internal/trail/proof"
)

// forwarded is the note of the newest entry handed on. It stands apart from the key and
// the streams: a trail put back to an earlier state, with its pin, contradicts it.
type forwarded struct {
	mu    sync.Mutex
	place Place // guarded by mu
	fails bool  // the newest write failed; guarded by mu
}

// Forwarded notes an entry whose event is in the journal. A crash before it leaves an
// older note: the entry comes again. It is written without a sync: after a power loss
// there may be an older note, or none. It is never ahead of the trail, as entries are
// durable before they are handed on.
func (t *Trail) Forwarded(p Place) {
	if t.options.ForwardedFile == "" || p.Root == nil {
		return
	}
	f := &t.forwarded
	f.mu.Lock()
	defer f.mu.Unlock()
	if p.Origin == f.place.Origin && p.Index <= f.place.Index { // it came again
		return
	}
	err := writeForwarded(t.options.ForwardedFile, p)
	if err == nil {
		f.place = p
	}
	if err != nil && !f.fails {
		t.log.Warn("the place of the newest audit entry given to the sinks cannot be noted; a trail that is put back to before it would not be noticed", "error", err)
	}
	f.fails = err != nil
}

func writeForwarded(path string, p Place) error {
	text, err := json.Marshal(p)
	if err != nil {
		return fmt.Errorf("encode note: %w", err)
	}
	line := append(strconv.AppendUint(nil, xxhash.Sum64(text), 16), append(append([]byte{' '}, text...), '\n')...)
	if err := os.WriteFile(path+".new", line, 0o600); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

// parseForwarded reads the note; nil where there is none, or not a whole one. A damaged one says
// nothing, as it is written without a sync.
func parseForwarded(line []byte) *Place {
	sum, text, _ := bytes.Cut(bytes.TrimSpace(line), []byte{' '})
	want, err := strconv.ParseUint(string(sum), 16, 64)
	p := &Place{}
	if err != nil || want != xxhash.Sum64(text) || json.Unmarshal(text, p) != nil || p.Root == nil || p.Size <= 0 || p.Index < p.Size-1 {
		return nil
	}
	return p
}

// takeForwarded takes in the newest entry handed on or published, nil for none, by whom knows of it. One far after
// the log's end is named, and decides nothing.
func (x *examination) takeForwarded(p *Place, by string) {
	if p == nil {
		return
	}
	if p.Index >= x.most {
		x.problem(tlogproof.KindForwarded, p.Index, p.Index, "%s entry %d, far more than the log can have lost: it decides nothing", by, p.Index)
		return
	}
	x.forwarded, x.given = p, by
}

// checkForwarded holds the trail against the newest entry handed on or published. A
// trail put back to an earlier state ends before it, or went on to another root.
func (x *examination) checkForwarded() {
	f := x.forwarded
	if f == nil {
		return
	}
	at := slices.IndexFunc(x.gens, func(g Generation) bool { return g.Origin == f.Origin })
	if at < 0 {
		x.problem("forwarded", f.Index, f.Index, "%s entry %d of a trail of the origin %s, and this one knows nothing of it", x.given, f.Index, f.Origin)
		return
	}
	if from := x.truncatedFrom(); f.Index >= from {
		x.problem("truncated", from, f.Index, "the trail ends before them, and %s them", x.given)
		return
	}
	leaves, proven := x.asSigned(), tree{}
	if at == len(x.gens)-1 {
		proven = x.signed
	} else if f.Size > x.gens[at].Size { // the generation ended without them
		return
	}
	if now, sure := treeUpTo(leaves[min(x.gens[at].Base, int64(len(leaves))):], f.Size, proven); sure && now.Root() != *f.Root {
		x.problem("forwarded", f.Index, f.Index, "%s entry %d under the root %s, and the root up to it is %s now", x.given, f.Index, *f.Root, now.Root())
	}
}

// truncatedFrom is the first entry after the trail's end and after those already reported
// as truncated.
func (x *examination) truncatedFrom() int64 {
	from := int64(len(x.leaves))
	for _, p := range x.report.Problems {
		if p.Kind == "truncated" {
			from = max(from, p.To+1)
		}
	}
	return from
}

// contradictsForwarded reports whether the newest tree, with placeholders for its lost end,
// would have another root than the sinks were given.
func (x *examination) contradictsForwarded() bool {
	f, last := x.forwarded, x.gens[len(x.gens)-1]
	return f != nil && f.Origin == last.Origin && f.Size > x.signed.Len() && f.Index > x.lastEntry()
}
