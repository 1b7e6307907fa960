package verify

import (
	"bytes"
	"encoding/json"
	"fmt"
	"time"

	"github.com/auditrelay/auditrelay/internal/jsontext"
	"github.com/auditrelay/auditrelay/internal/trail/audit"
	"github.com/auditrelay/auditrelay/internal/trail/proof"
	"github.com/auditrelay/auditrelay/internal/workspace"
)

// fact is an entry about the trail itself, or about the watching.
type fact struct {
	index  int64
	kind   string // its type, or lostLeaf
	record []byte
}

const lostLeaf = "lost"

// The types of attestations, by internal/workspace and internal/workspace/streaming.
const (
	settingsChecked  = "settings.checked"
	streamingChecked = "streaming.checked"
)

// typeTail is how far before its end a record names its type: members are in order, and
// only short ones come after it.
const typeTail = 1 << 10

// factOf picks the few facts, without decoding the other entries.
func factOf(record []byte) (f fact, interesting bool) {
	if bytes.HasPrefix(record, []byte(`{"lost_entry":`)) {
		return fact{kind: lostLeaf}, true
	}
	tail := record[max(0, len(record)-typeTail):]
	at := bytes.LastIndex(tail, []byte(`"type":"`))
	if at < 0 {
		return fact{}, false
	}
	name, _, _ := bytes.Cut(tail[at+len(`"type":"`):], []byte(`"`))
	switch kind := string(name); kind {
	case settingsChecked, streamingChecked, audit.TypeWitnessRefused, audit.TypeWitnessAgreed, audit.TypeRotated, typeSpan, audit.TypeGeneration, audit.TypeDamaged, audit.TypeRestored, proof.TypeArchived:
		return fact{kind: kind, record: bytes.Clone(record)}, true
	}
	return fact{}, false
}

// nextKey is the key of the next generation, as an entry about a rotation names it; else empty.
func (f *fact) nextKey() string {
	var e audit.Entry
	if f.kind != audit.TypeRotated || json.Unmarshal(f.record, &e) != nil {
		return ""
	}
	return audit.NextKey(&e)
}

// completeness checks the facts, in order.
type completeness struct {
	report   *Report
	pulse    audit.Pulse // of the signatures
	looked   map[place]time.Time
	refused  map[string]string   // by witness, what a finding says of it
	opened   opening             // by the newest generation's first entry
	span     map[string]*spanned // the newest one, by the subject: each log of events has its own
	endorsed []string            // keys named by the trusted generations so far
	archived []proof.Archived    // as the trail says
	unread   []Archived          // entries whose bundles are not here
	absent   []Archived          // those of them that are proven by their hashes, in full bundles

	successor successor
}

func newCompleteness(r *Report) *completeness {
	return &completeness{report: r, looked: map[place]time.Time{}, refused: map[string]string{}, span: map[string]*spanned{}}
}

// place is the subject of attestations.
type place struct{ kind, project, environment string }

// opening is what a generation's first entry says, and its index.
type opening struct {
	index int64
	audit.Opening
}

// take takes in the next fact.
func (c *completeness) take(f fact) {
	if f.kind == lostLeaf {
		c.report.Completeness.run(proof.KindLost, "", f.index, f.index, "", "it was lost before it was signed; the trail says so in its place")
		return
	}
	var e audit.Entry
	if json.Unmarshal(f.record, &e) != nil {
		return // it is altered, and named
	}
	switch f.kind {
	case settingsChecked, streamingChecked:
		c.check(f.index, place{f.kind, e.Project, e.Environment}, workspace.CheckOf(e))
	case audit.TypeGeneration, audit.TypeDamaged, audit.TypeRestored:
		var o audit.Opening
		if json.Unmarshal(e.Detail, &o) == nil {
			c.named(f, o)
		}
	case audit.TypeWitnessRefused, audit.TypeWitnessAgreed:
		c.witness(f, e)
	case typeSpan:
		c.spans(f.index, e)
	case proof.TypeArchived:
		var a proof.Archived
		if json.Unmarshal(e.Detail, &a) == nil {
			c.archived = append(c.archived, a)
		}
	case audit.TypeRotated:
		if key := f.nextKey(); key != "" {
			c.endorsed = append(c.endorsed, key)
			c.successor = successor{f.index, key}
		}
	}
}

// successor is the newest key that the trail names, by the entry with an index. Such an entry
// is the last one of its generation: from then on the new key signs. If a crash interrupts the
// rotation, then the old key goes on, with further entries.
type successor struct {
	index int64
	key   string
}

// succeeded adds a finding where the last signed entry of all logs names a successor's key:
// the generation under that key is not here.
func (c *completeness) succeeded() {
	if c.successor.key == "" || c.successor.index != c.report.end()-1 {
		return
	}
	c.report.Completeness.about(proof.KindMissing, "", "",
		"entry %d, the last signed one, names the key %s of the next generation, and that generation is not here: it was deleted, or the relay has not been started since the rotation",
		c.successor.index, c.successor.key)
}

// named reports the damage named by the trail itself. What it says to be restored is settled:
// the entries are proven.
func (c *completeness) named(f fact, o audit.Opening) {
	if f.kind == audit.TypeGeneration {
		c.opened = opening{f.index, o}
	}
	for _, p := range o.Problems {
		if p.Kind == proof.KindRestored {
			c.report.settle(proof.Finding{Kind: proof.KindRestored, From: p.From, To: p.To, File: inTheLog, Detail: fmt.Sprintf("%s; entry %d of the trail names it", p.Detail, f.index)})
			continue
		}
		c.report.Completeness.about(proof.KindNamed, "", "", "entry %d of the trail names damage: %s", f.index, p)
	}
}

// lookSlack is the longest round of looks, in addition to the time between two.
const lookSlack = 5 * time.Minute

// check holds an attestation against the one before it.
func (c *completeness) check(index int64, at place, check workspace.Check) {
	if check.Until.IsZero() {
		return
	}
	where := at.project
	if at.environment != "" {
		where += "/" + at.environment
	}
	gap := func(format string, args ...any) {
		c.report.Completeness.run(proof.KindLooks, "", index, index, "", "%s: "+format, append([]any{where}, args...)...)
	}
	most := time.Duration(0) // between two rounds
	for name, r := range check.Resources {
		every, err := time.ParseDuration(r.Every)
		if err != nil {
			continue
		}
		if most == 0 || every < most {
			most = every
		}
		if r.Looks == 0 && check.Until.Sub(check.From) > 2*every+lookSlack {
			gap("nobody saw %s between %s and %s", name, stamp(check.From), stamp(check.Until))
		}
	}
	if last, known := c.looked[at]; known && check.From.Sub(last) > 2*most+lookSlack {
		gap("nobody looked between %s and %s", stamp(last), stamp(check.From))
	}
	if check.Until.After(c.looked[at]) {
		c.looked[at] = check.Until
	}
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// witness keeps a refusal until the witness agrees again.
func (c *completeness) witness(f fact, e audit.Entry) {
	var refusal struct { // not the size that the witness names: of one above 2^53 the record has a text
		Witness, Reason string
		Size            int64
	}
	if json.Unmarshal(e.Detail, &refusal) != nil {
		return
	}
	delete(c.refused, refusal.Witness)
	if f.kind == audit.TypeWitnessRefused {
		c.refused[refusal.Witness] = fmt.Sprintf("entry %d says that the witness %s refused the tree of %d entries: %s", f.index, refusal.Witness, refusal.Size, refusal.Reason)
	}
}

// end is called after the last fact.
func (c *completeness) end(now time.Time) {
	c.succeeded()
	for _, detail := range c.refused {
		c.report.Integrity.about(proof.KindHistory, "", "", "%s", detail)
	}
	for _, gap := range c.pulse.Gaps(now) {
		c.report.Completeness.about(proof.KindHeartbeat, "", "", "%s", gap)
	}
}

// typeSpan is the type of the entries with spans of the event stream, by
// internal/trail/eventproof.
const typeSpan = "events.span"

// spanDetail is the part of their details that is held against the span before it.
type spanDetail struct {
	First    uint64 `json:"first_position"`
	Last     uint64 `json:"last_position"`
	Previous *struct {
		Index  int64  `json:"index"`
		SHA256 string `json:"detail_sha256"`
	} `json:"previous"`
	Again   uint64 `json:"again_to"`
	Missing []struct {
		From   uint64 `json:"from"`
		To     uint64 `json:"to"`
		Reason string `json:"reason"`
	} `json:"missing"`
	MoreMissing uint64 `json:"more_missing"`
}

// spanned is the newest span of the event stream.
type spanned struct {
	index int64
	sum   string // of its detail
	last  uint64 // position
}

// spans holds a span against the one before it: they leave no position out.
func (c *completeness) spans(index int64, e audit.Entry) {
	var s spanDetail
	canonical, err := jsontext.Canonical(e.Detail)
	if err != nil || json.Unmarshal(e.Detail, &s) != nil {
		return
	}
	finding := func(format string, args ...any) {
		c.report.Completeness.run(proof.KindSpan, "", index, index, "", format, args...)
	}
	before := c.span[e.Subject]
	switch {
	case s.Previous != nil && c.isUnread(s.Previous.Index): // its bundle is missing, or archived
	case before == nil && s.Previous != nil:
		finding("the span before it, entry %d, is not here", s.Previous.Index)
	case before != nil && s.Previous == nil:
		finding("it does not name the span before it, entry %d", before.index)
	case before != nil && (s.Previous.Index != before.index || s.Previous.SHA256 != before.sum):
		finding("it names entry %d as the span before it, which is entry %d, or another one", s.Previous.Index, before.index)
	case before != nil && s.First > before.last+1:
		finding("no span covers the positions %d to %d of the event stream", before.last+1, s.First-1)
	case before != nil && s.First <= before.last && s.Again != before.last:
		finding("it covers positions up to %d a second time, and does not say so", before.last)
	case s.Again > 0:
		finding("the event stream went back: the positions %d to %d have other events now", s.First, s.Again)
	}
	for _, m := range s.Missing {
		finding("the positions %d to %d of the event stream are under no root: %s", m.From, m.To, m.Reason)
	}
	if s.MoreMissing > 0 {
		finding("%d more positions of the event stream are under no root", s.MoreMissing)
	}
	c.span[e.Subject] = &spanned{index, jsontext.Hash(canonical), s.Last}
}
