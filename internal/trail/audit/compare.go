package audit

import (
	"fmt"

	"golang.org/x/mod/sumdb/tlog"
)

// compareLeaves names the differences between the entries, got, and the signed ones,
// want. Zero hashes in got are missing entries; in want they are entries without a
// signature. Runs of one kind are one problem.
func compareLeaves(got, want []tlog.Hash) []Problem {
	c := comparison{got: got, want: want}
	for i, w := range want {
		if w != (tlog.Hash{}) && (i >= len(got) || got[i] != w) {
			c.differ(int64(i))
		}
	}
	for i := len(want); i < len(got); i++ {
		if got[i] == (tlog.Hash{}) {
			c.found("missing", int64(i), "nothing stands there, and it was not signed yet")
		}
	}
	return c.problems
}

// comparison makes its indices only when something is wrong.
type comparison struct {
	got, want     []tlog.Hash
	inGot, inWant map[tlog.Hash]int64
	problems      []Problem
}

// differ tells the fate of entry i, and names the entry in its place.
func (c *comparison) differ(i int64) {
	if c.inGot == nil {
		c.inGot, c.inWant = places(c.got), places(c.want)
	}
	at, elsewhere := c.inGot[c.want[i]]
	if elsewhere {
		c.found("moved", i, fmt.Sprintf("stands %+d places off", at-i))
	}
	if i >= int64(len(c.got)) {
		if !elsewhere {
			c.found("truncated", i, "the trail ends before it")
		}
		return
	}
	_, known := c.inWant[c.got[i]]
	switch empty := c.got[i] == (tlog.Hash{}); {
	case elsewhere && !known && !empty:
		c.found("foreign", i, "an entry that was never signed stands here")
	case elsewhere:
	case empty:
		c.found("missing", i, "nothing stands there")
	case known:
		c.found("removed", i, "it is nowhere, and another entry stands in its place")
	default:
		c.found("altered", i, "it does not have the hash that was signed")
	}
}

// found adds a problem at i, or lengthens the one just before it.
func (c *comparison) found(kind string, i int64, detail string) {
	for k := len(c.problems) - 1; k >= max(0, len(c.problems)-2); k-- {
		if p := &c.problems[k]; p.Kind == kind && p.Detail == detail && p.To == i-1 {
			p.To = i
			return
		}
	}
	c.problems = append(c.problems, Problem{Kind: kind, From: i, To: i, Detail: detail})
}

func places(leaves []tlog.Hash) map[tlog.Hash]int64 {
	m := make(map[tlog.Hash]int64, len(leaves))
	for i, leaf := range leaves {
		m[leaf] = int64(i)
	}
	delete(m, tlog.Hash{})
	return m
}
