package verify

import (
	"encoding/json"
	"fmt"

	"github.com/auditrelay/auditrelay/internal/json/jsondiff"
	"github.com/auditrelay/auditrelay/internal/trail/audit"
)

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
	canonical, err := jsondiff.Canonical(e.Detail)
	if err != nil || json.Unmarshal(e.Detail, &s) != nil {
		return
	}
	finding := func(format string, args ...any) {
		c.report.Completeness.add(Finding{Kind: Span, From: index, To: index, Detail: fmt.Sprintf(format, args...)})
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
	case s.Again > 0:
		finding("the event stream went back: the positions %d to %d have other events now", s.First, s.Again)
	}
	for _, m := range s.Missing {
		finding("the positions %d to %d of the event stream are under no root: %s", m.From, m.To, m.Reason)
	}
	if s.MoreMissing > 0 {
		finding("%d more positions of the event stream are under no root", s.MoreMissing)
	}
	if c.span == nil {
		c.span = map[string]*spanned{}
	}
	c.span[e.Subject] = &spanned{index, jsondiff.Hash(canonical), s.Last}
}
