package verify

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"slices"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/auditrelay/auditrelay/internal/audit"
	"github.com/auditrelay/auditrelay/internal/proof"
)

// maxEvent bounds one line of events: the largest body in base64.
const maxEvent = 64 << 20

// A batch of events ends after batchBytes.
const batchBytes = 8 << 20

// Events verifies a sink's copy of a trail: events as JSON lines, each a CloudEvent, a batch of
// CloudEvents or a bare body, in any order, some of them twice or of no entry. The checkpoints are those
// among the events, and o.Known.
func Events(ctx context.Context, in io.Reader, o Options) (Report, error) {
	lines := bufio.NewReaderSize(in, 1<<20)
	return events(ctx, "line", func() ([][]byte, error) { return nextLines(lines) }, o)
}

// EventBodies is [Events] of bodies or CloudEvents one by one, not in lines. An error
// ends it.
func EventBodies(ctx context.Context, bodies iter.Seq2[[]byte, error], o Options) (Report, error) {
	next, stop := iter.Pull2(bodies)
	defer stop()
	return events(ctx, "record", func() (batch [][]byte, err error) {
		for size := 0; len(batch) < lineBatch && size < batchBytes; {
			body, err, more := next()
			if !more {
				return batch, io.EOF
			}
			if err != nil {
				return batch, err
			}
			batch = append(batch, body)
			size += len(body)
		}
		return batch, nil
	}, o)
}

// events reads batch after batch, up to io.EOF. unit is the word for an event of a batch.
func events(ctx context.Context, unit string, next func() ([][]byte, error), o Options) (Report, error) {
	c := &copied{o: &o, unit: unit, report: &Report{Trusted: o.Policy != nil}, trees: map[string]*copiedTree{}}
	c.complete = &completeness{report: c.report}
	for number := 0; ; {
		batch, err := next()
		found := make([][]copiedEvent, len(batch))
		if err := parallel(ctx, len(batch), workersOf(&o), func(i int) error {
			found[i] = readEvents(batch[i])
			return nil
		}); err != nil {
			return Report{}, err
		}
		for i := range found {
			number++
			for j := range found[i] {
				c.take(&found[i][j], number)
			}
		}
		if o.Progress != nil {
			o.Progress(c.entries, c.entries)
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return Report{}, fmt.Errorf("read the events: %w", err)
		}
	}
	c.end()
	return *c.report, nil
}

// copied is a copy of a trail in the making.
type copied struct {
	o        *Options
	unit     string // line or record
	report   *Report
	complete *completeness
	trees    map[string]*copiedTree // by origin
	notes    map[string]bool        // the checkpoints
	facts    []fact
	endorsed []string // keys named by the proven entries so far
	entries  int64
}

// copiedTree has the leaves of one generation, by chunks; zero for none.
type copiedTree struct {
	leaves, roots map[int64]*[width]tlog.Hash
	end           int64
}

func (c *copied) take(e *copiedEvent, number int) {
	switch {
	case e.wrong != "":
		c.report.Integrity.add(Finding{Kind: Altered, From: -1, To: -1, Detail: fmt.Sprintf("%s %d is no event: %s", c.unit, number, e.wrong)})
	case e.note != "":
		if c.notes == nil {
			c.notes = map[string]bool{}
		}
		c.notes[e.note] = true
	case e.entry:
		c.takeEntry(e)
	}
}

func (c *copied) takeEntry(e *copiedEvent) {
	origin := e.place.Origin
	n := e.place.Index - proof.BaseOf(origin)
	finding := func(v *Verdict, kind, detail string) {
		v.add(Finding{Kind: kind, Log: origin, From: e.place.Index, To: e.place.Index, Detail: detail})
	}
	if n < 0 || n > 1<<40 || e.place.Size != 0 && e.place.Size != n+1 {
		finding(&c.report.Integrity, Altered, "its index and the size of its tree contradict each other")
		return
	}
	switch {
	case errors.Is(e.err, audit.ErrLeafOmitted):
		finding(&c.report.Completeness, Omitted, "its event gives the hash of the entry only")
	case e.err != nil:
		finding(&c.report.Integrity, Altered, e.err.Error())
	}
	t := c.trees[origin]
	if t == nil {
		t = &copiedTree{leaves: map[int64]*[width]tlog.Hash{}, roots: map[int64]*[width]tlog.Hash{}}
		c.trees[origin] = t
	}
	if !t.set(t.leaves, n, e.leaf) {
		finding(&c.report.Integrity, Altered, "another event of the same entry has other content")
		return
	}
	c.entries++
	if e.place.Root != nil && !t.set(t.roots, n, *e.place.Root) {
		finding(&c.report.Integrity, Altered, "another event of the same entry names another tree")
	}
	if e.fact != nil {
		c.facts = append(c.facts, *e.fact)
	}
}

// set notes the n-th hash; false if there is another one.
func (t *copiedTree) set(in map[int64]*[width]tlog.Hash, n int64, h tlog.Hash) bool {
	if in[n/width] == nil {
		in[n/width] = new([width]tlog.Hash)
	}
	at := &in[n/width][n%width]
	if *at != (tlog.Hash{}) && *at != h {
		return false
	}
	*at = h
	t.end = max(t.end, n+1)
	return true
}

func (t *copiedTree) get(in map[int64]*[width]tlog.Hash, n int64) tlog.Hash {
	if in[n/width] == nil {
		return tlog.Hash{}
	}
	return in[n/width][n%width]
}

// run is a run of leaves, the last one included.
type run struct{ from, to int64 }

// gaps are the runs without an event. An event may claim any index, so no step is taken for
// each entry of a gap.
func (t *copiedTree) gaps() (all []run) {
	next := int64(0)
	for _, chunk := range slices.Sorted(maps.Keys(t.leaves)) {
		for i, leaf := range t.leaves[chunk] {
			n := chunk*width + int64(i)
			if leaf == (tlog.Hash{}) {
				continue
			}
			if n > next {
				all = append(all, run{next, n - 1})
			}
			next = n + 1
		}
	}
	if next < t.end {
		all = append(all, run{next, t.end - 1})
	}
	return all
}

// end verifies each generation.
func (c *copied) end() {
	origins := slices.SortedFunc(maps.Keys(c.trees), func(a, b string) int {
		return cmp.Or(cmp.Compare(proof.BaseOf(a), proof.BaseOf(b)), cmp.Compare(a, b))
	})
	for _, origin := range origins {
		c.tree(origin, c.trees[origin])
	}
	if len(origins) == 0 {
		c.report.Completeness.add(Finding{Kind: Missing, From: -1, To: -1, Detail: "no event holds an entry of the trail"})
	}
	slices.SortFunc(c.facts, func(a, b fact) int { return cmp.Compare(a.index, b.index) })
	facts := slices.CompactFunc(c.facts, func(a, b fact) bool { return a.index == b.index })
	for _, f := range facts {
		c.complete.take(f)
	}
	c.complete.end(c.o.Now)
	c.report.Integrity.close()
	c.report.Completeness.close()
}

// tree holds the events of a generation against the signed roots.
func (c *copied) tree(origin string, t *copiedTree) {
	l := &logCheck{o: c.o, report: c.report, complete: c.complete, origin: origin, base: proof.BaseOf(origin)}
	if c.o.Policy != nil {
		var err error
		if l.policy, err = c.policyOf(l); err != nil {
			c.report.Integrity.add(Finding{Kind: Key, Log: origin, From: -1, To: -1, Detail: err.Error()})
		}
		l.trusted = err == nil
	}
	made := Log{Origin: origin, Base: l.base}
	if l.trusted {
		made.Key = l.policy.Logs[0].Key
	}
	checkpoints := c.checkpoints(l, &made)
	made.Size, made.Root = l.replay(t, checkpoints)
	c.endorse(l, made.Size)
	c.report.Entries += made.Size
	c.report.Logs = append(c.report.Logs, made)
}

// allNotes are the checkpoints among the events and those known from elsewhere.
func (c *copied) allNotes() []string {
	notes := slices.Collect(maps.Keys(c.notes))
	for _, note := range c.o.Known {
		notes = append(notes, string(note))
	}
	return notes
}

// checkpoints are those of a log, the smallest tree first.
func (c *copied) checkpoints(l *logCheck, made *Log) (list []signed) {
	for _, note := range c.allNotes() {
		if origin, text := originIn([]byte(note)); text && origin != l.origin {
			continue
		}
		s, by, err := l.open([]byte(note))
		if err != nil {
			c.report.Integrity.add(Finding{Kind: Checkpoint, Log: l.origin, From: -1, To: -1, Detail: fmt.Sprintf("a checkpoint among the events: %v", err)})
			continue
		}
		c.report.Checkpoints++
		if by.Time.After(made.Signed) {
			made.describe(proof.Cosigned{Time: by.Time})
		}
		list = append(list, s)
	}
	slices.SortFunc(list, func(a, b signed) int { return cmp.Or(cmp.Compare(a.size, b.size), cmp.Compare(a.unix, b.unix)) })
	for _, s := range list {
		l.complete.beatOf(s)
	}
	return list
}

// replay grows the tree from the events, and returns the largest proven one.
func (l *logCheck) replay(t *copiedTree, checkpoints []signed) (proven int64, root tlog.Hash) {
	var e edge
	whole, end, broken := true, t.end, int64(-1)
	var unlike []int64 // sizes with another signed root
	for _, gap := range t.gaps() {
		l.report.Completeness.add(Finding{Kind: Missing, Log: l.origin, From: l.base + gap.from, To: l.base + gap.to, Detail: "no event of it is here"})
		whole = false
		end = min(end, gap.from)
	}
	for n := int64(0); n < end && broken < 0; n++ {
		e.grow(t.get(t.leaves, n))
		if stated := t.get(t.roots, n); stated != (tlog.Hash{}) && stated != fold(e.peaks) {
			broken = n
		}
		for ; len(checkpoints) > 0 && checkpoints[0].size <= e.n; checkpoints = checkpoints[1:] {
			switch c := checkpoints[0]; {
			case c.size < e.n || broken >= 0: // an empty tree's
			case c.root != fold(e.peaks):
				unlike = append(unlike, c.size)
			default:
				proven, root = c.size, c.root
			}
		}
	}
	for _, size := range unlike {
		if size > proven && broken < 0 {
			broken = proven
		} else if size <= proven {
			l.report.Integrity.add(Finding{
				Kind: History, Log: l.origin, From: -1, To: -1,
				Detail: fmt.Sprintf("a checkpoint has another root for the first %d entries: the log has signed two histories", size),
			})
		}
	}
	switch {
	case broken >= 0:
		l.entryFinding(Unproven, broken, t.end-1, "", "they, or the trees named by their events, do not give the signed root")
	case proven < t.end:
		l.report.Completeness.add(Finding{Kind: NotCovered, Log: l.origin, From: l.base + proven, To: l.base + t.end - 1, Detail: "no checkpoint that the events give the root of covers them"})
	}
	if n := len(checkpoints); whole && n > 0 && checkpoints[n-1].size > t.end {
		l.report.Completeness.add(Finding{Kind: Missing, Log: l.origin, From: l.base + t.end, To: l.base + checkpoints[n-1].size - 1, Detail: "a checkpoint covers them, and no event of them is here"})
	}
	return proven, root
}
