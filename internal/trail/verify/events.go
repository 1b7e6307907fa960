package verify

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"iter"
	"maps"
	"slices"
	"time"

	"github.com/auditrelay/auditrelay/internal/trail/audit"
	"github.com/auditrelay/auditrelay/internal/trail/proof"
	"github.com/auditrelay/auditrelay/relay"
)

// maxEvent bounds one line of events: the largest body in base64.
const maxEvent = 64 << 20

// A batch of events ends after batchBytes.
const batchBytes = 8 << 20

// Events verifies a sink's copy of a trail: events as JSON lines, each a CloudEvent, a batch of
// CloudEvents or a bare body, in any order, some of them twice or of no entry. The checkpoints are those
// among the events, and o.Known.
//
// The attributes of a CloudEvent are held against the entry. A bare body has none, and a push
// may look like it: so the signed roots decide which bodies are entries, and the others are
// named apart. In a copy of bare bodies, a CloudEvent is a pushed body too, whatever it says.
func Events(ctx context.Context, in io.Reader, o Options) (Report, error) {
	return events(ctx, "line", linesOf(in), o)
}

// Delivered is a record of a sink's copy.
type Delivered struct {
	// Event is the event, where its attributes stand apart from its body, as in headers.
	Event *relay.Event
	// Text is else a CloudEvent as JSON, a batch of them, or a bare body.
	Text []byte
}

// EventRecords is [Events] of records one by one, not in lines. An error ends it.
func EventRecords(ctx context.Context, records iter.Seq2[Delivered, error], o Options) (Report, error) {
	return events(ctx, "record", records, o)
}

// events reads batch after batch. unit is the word for a record.
func events(ctx context.Context, unit string, records iter.Seq2[Delivered, error], o Options) (Report, error) {
	c := &copied{o: &o, unit: unit, report: &Report{Trusted: o.Policy != nil}, trees: map[string]*claims{}, notes: map[string][]noted{}, taken: map[noted]bool{}}
	c.complete = newCompleteness(c.report)
	var batch []Delivered
	size := 0
	for one, err := range records {
		if err != nil {
			return Report{}, fmt.Errorf("read the events: %w", err)
		}
		batch, size = append(batch, one), size+len(one.Text)
		if one.Event != nil {
			size += len(one.Event.Body)
		}
		if len(batch) < lineBatch && size < batchBytes {
			continue
		}
		if err := c.read(ctx, batch); err != nil {
			return Report{}, err
		}
		batch, size = nil, 0
	}
	if err := c.read(ctx, batch); err != nil {
		return Report{}, err
	}
	c.end()
	return *c.report, nil
}

// read decodes some records in parallel, and takes in their events.
func (c *copied) read(ctx context.Context, batch []Delivered) error {
	found := make([][]copiedEvent, len(batch))
	err := c.o.parallel(ctx, len(batch), func(i int) error {
		found[i] = readDelivered(&batch[i])
		return nil
	})
	if err != nil {
		return err
	}
	for i := range found {
		c.records++
		for j := range found[i] {
			c.take(&found[i][j])
		}
	}
	if c.o.Progress != nil {
		c.o.Progress(c.entries, c.entries)
	}
	return nil
}

// copied is a copy of a trail in the making.
type copied struct {
	o        *Options
	unit     string // line or record
	records  int    // read so far
	report   *Report
	complete *completeness
	trees    map[string]*claims // by origin
	notes    map[string][]noted // the checkpoints, by origin
	taken    map[noted]bool     // those of notes, since a copy may have each of them many times
	facts    []fact
	endorsed []string // keys named by the proven entries so far
	entries  int64

	// bodies and framed count the proven entries that came as bare bodies only, and those that
	// came with attributes.
	bodies, framed int
	// doubts are the findings about what came with attributes, or is no event. In a copy of
	// bodies these were pushed.
	doubts Verdict
}

// ofBodies reports whether the copy is one of bare bodies, as far as entries are proven.
func (c *copied) ofBodies() bool { return c.bodies > c.framed }

// noted is a checkpoint among the events.
type noted struct {
	note  string
	at    time.Time // as its event says; zero where it came without attributes
	bare  bool
	known bool // it is one of the options
}

func (c *copied) take(e *copiedEvent) {
	switch {
	case e.wrong != "", e.apart != "":
		c.doubt(proof.Finding{Kind: proof.KindAltered, From: -1, To: -1, Detail: fmt.Sprintf("%s %d %s", c.unit, c.records, e.wrong+e.apart)}, e.wrong == "")
	case e.checkpoint.note != "":
		origin, _ := originIn([]byte(e.checkpoint.note))
		if !c.taken[e.checkpoint] {
			c.taken[e.checkpoint] = true
			c.notes[origin] = append(c.notes[origin], e.checkpoint)
		}
	case e.entry:
		c.takeEntry(e)
	}
}

func (c *copied) takeEntry(e *copiedEvent) {
	origin := e.place.Origin
	one := e.claim
	one.n = e.place.Index - proof.BaseOf(origin)
	if one.n < 0 || one.n > 1<<40 || e.place.Size != 0 && e.place.Size != one.n+1 {
		c.refuse(origin, &one, e.place.Index, "its index and the size of its tree contradict each other")
		return
	}
	t := c.trees[origin]
	if t == nil {
		t = &claims{}
		c.trees[origin] = t
	}
	t.add(one)
	c.entries++
}

// refuse names an event that is no entry of the trail.
func (c *copied) refuse(origin string, one *claim, index int64, why string) {
	c.doubt(proof.Finding{Kind: proof.KindAltered, Log: origin, From: index, To: index, Detail: why}, one.bare)
}

// doubt names an event that is none of the trail's, though it looks like one. Without attributes it
// may be a push; with those of the trail it was forged.
func (c *copied) doubt(f proof.Finding, bare bool) {
	if bare {
		f.Kind = proof.KindImitation
		c.report.setApart(f)
	} else {
		c.doubts.add(f)
	}
}

// end verifies each generation.
func (c *copied) end() {
	// The policy's own logs come first, since they show what the copy consists of.
	place := map[string]int{}
	for origin := range c.trees {
		if !c.o.knows(origin) {
			place[origin] = 1
		}
	}
	origins := slices.SortedFunc(maps.Keys(c.trees), func(a, b string) int {
		return cmp.Or(cmp.Compare(place[a], place[b]), cmp.Compare(proof.BaseOf(a), proof.BaseOf(b)), cmp.Compare(a, b))
	})
	for _, note := range c.o.Known {
		origin, _ := originIn(note)
		c.notes[origin] = append(c.notes[origin], noted{note: string(note), known: true})
	}
	for _, origin := range origins {
		c.tree(origin, c.trees[origin])
	}
	c.strayNotes()
	c.settleDoubts()
	if len(c.report.Logs) == 0 {
		c.report.Completeness.about(proof.KindMissing, "", "", "no event holds an entry of the trail")
	}
	slices.SortFunc(c.facts, func(a, b fact) int { return cmp.Compare(a.index, b.index) })
	facts := slices.CompactFunc(c.facts, func(a, b fact) bool { return a.index == b.index })
	for _, f := range facts {
		c.complete.take(f)
	}
	c.complete.end(c.o.Now)
	c.report.close()
}

// policyOf is the policy for a generation: with a key named by a proven entry of an older
// one, if it signed a checkpoint of this one; else with the policy's own.
func (c *copied) policyOf(of *logCheck) (proof.Policy, error) {
	return c.o.follow(of.origin, c.endorsed, func(p *proof.Policy) bool {
		l := *of
		l.policy, l.trusted = *p, true
		return slices.ContainsFunc(c.notes[l.origin], func(n noted) bool {
			_, _, err := l.open([]byte(n.note))
			return err == nil
		})
	})
}

// settleDoubts names apart, or counts, what came with attributes or is no event.
func (c *copied) settleDoubts() {
	if !c.ofBodies() {
		for _, f := range c.doubts.Findings {
			c.report.Integrity.add(f)
		}
		c.report.Integrity.More += c.doubts.More
		return
	}
	for _, f := range c.doubts.Findings {
		c.doubt(f, true)
	}
	c.report.Apart.Events += c.doubts.More
}

// strayNotes names the checkpoints left over: of logs without an entry here.
func (c *copied) strayNotes() {
	for _, origin := range slices.Sorted(maps.Keys(c.notes)) {
		for _, n := range c.notes[origin] {
			f := proof.Finding{Kind: proof.KindCheckpoint, Log: origin, From: -1, To: -1, Detail: "a checkpoint of a log of which no entry is here"}
			if n.bare || c.ofBodies() && !n.known {
				c.doubt(f, true)
			} else {
				c.report.Completeness.add(f)
			}
		}
	}
}

// tree holds the events of a generation against the signed roots.
func (c *copied) tree(origin string, t *claims) {
	l := &logCheck{o: c.o, report: c.report, complete: c.complete, origin: origin, base: proof.BaseOf(origin)}
	t.sort()
	if c.ofBodies() {
		t.strip()
	}
	if c.o.Policy != nil {
		var err error
		if l.policy, err = c.policyOf(l); err != nil {
			c.stranger(l, t, err)
		}
		l.trusted = err == nil
	}
	if len(t.list) == 0 {
		return
	}
	made := Log{Origin: origin, Base: l.base}
	if l.trusted {
		made.Key = l.policy.Logs[0].Key
	}
	var g growth
	signed := c.checkpoints(l, &made)
	g.grow(t.list, signed)
	made.Size, made.Root = int64(len(g.settled)), g.root
	j := &judge{c: c, l: l, growth: &g, joins: l.base == c.report.end()}
	if l.trusted && (len(signed) > 0 || len(c.endorsed) == 0) { // else a newer key may be this log's
		j.name = audit.NameOf(made.Key)
	}
	j.weigh(t.list)
	if c.ofBodies() {
		t.strip()
	}
	j.all(t.list)
	if made.Size == 0 && j.next == 0 {
		return // all of it was set apart
	}
	c.report.Entries += made.Size
	c.report.Logs = append(c.report.Logs, made)
}

// stranger names a log that is none of the policy's. Bodies without attributes imitate entries.
func (c *copied) stranger(l *logCheck, t *claims, why error) {
	t.list = slices.DeleteFunc(t.list, func(one claim) bool {
		if one.bare {
			c.refuse(l.origin, &one, l.base+one.n, why.Error())
		}
		return one.bare
	})
	if len(t.list) > 0 {
		c.report.Integrity.about(proof.KindKey, l.origin, "", "%v", why)
	}
}

// checkpoints are those of a log, the smallest tree first.
func (c *copied) checkpoints(l *logCheck, made *Log) (list []signed) {
	for _, n := range c.notes[l.origin] {
		s, by, err := l.open([]byte(n.note))
		if err == nil && !n.at.IsZero() && !by.Time.IsZero() && !n.at.Equal(by.Time) {
			err = fmt.Errorf("its event is of %s, and it was signed at %s", stamp(n.at), stamp(by.Time))
		}
		if err != nil {
			f := proof.Finding{Kind: proof.KindCheckpoint, Log: l.origin, From: -1, To: -1, Detail: fmt.Sprintf("a checkpoint among the events: %v", err)}
			if n.known {
				c.report.Integrity.add(f)
			} else {
				c.doubt(f, n.bare)
			}
			continue
		}
		c.report.Checkpoints++
		if by.Time.After(made.Signed) {
			made.describe(proof.Cosigned{Time: by.Time})
		}
		list = append(list, s)
	}
	delete(c.notes, l.origin)
	slices.SortFunc(list, func(a, b signed) int { return cmp.Or(cmp.Compare(a.size, b.size), a.Time.Compare(b.Time)) })
	for _, s := range list {
		l.complete.pulse.Add(s.Signing, s.seq)
	}
	return list
}
