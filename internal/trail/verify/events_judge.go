package verify

import (
	"fmt"
	"slices"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/auditrelay/auditrelay/internal/trail/proof"
)

// judge tells the fate of each claim on the entries of a log.
type judge struct {
	*growth

	c    *copied
	l    *logCheck
	name string // that the ids of the log's events begin with; "" where it is not known
	// joins: the log begins where the proven entries end. Only then a tree under no signed root
	// can be the trail's newest entries.
	joins bool
	next  int64 // the first entry after the newest claimed one
	gaps  bool
}

// all judges sorted claims, and names what is missing and what is not proven.
func (j *judge) all(list []claim) {
	groups(list, j.group)
	end, proven := j.next, int64(len(j.settled))
	r, origin, base := j.l.report, j.l.origin, j.l.base
	if j.broken && j.reached < end {
		r.Integrity.run(proof.KindUnproven, origin, base+j.reached, base+end-1, "", "they, or the trees named by their events, do not give the signed root")
	} else if proven < end {
		r.Completeness.run(proof.KindNotCovered, origin, base+proven, base+end-1, "", "no checkpoint that the events give the root of covers them")
	}
	if !j.gaps && j.covered > end {
		r.Completeness.run(proof.KindMissing, origin, base+end, base+j.covered-1, "", "a checkpoint covers them, and no event of them is here")
	}
	for _, size := range j.signedTwice {
		r.Integrity.about(proof.KindHistory, origin, "", "a checkpoint has another root for the first %d entries: the log has signed two histories", size)
	}
}

// group judges the claims on one entry.
func (j *judge) group(group []claim) {
	n := group[0].n
	if n < int64(len(j.settled)) {
		j.proven(group, j.settled[n])
	} else if group = slices.DeleteFunc(slices.Clone(group), j.isStray); len(group) > 0 {
		j.unproven(group)
	} else {
		return
	}
	if n > j.next {
		j.l.report.Completeness.run(proof.KindMissing, j.l.origin, j.l.base+j.next, j.l.base+n-1, "", "no event of it is here")
		j.gaps = true
	}
	j.next = n + 1
}

// weigh counts the proven entries by the form in which they came.
func (j *judge) weigh(list []claim) {
	groups(list, func(group []claim) {
		n, sound, framed := group[0].n, false, false
		if n >= int64(len(j.settled)) {
			return
		}
		for i := range group {
			if j.isSound(&group[i], j.settled[n]) {
				sound, framed = true, framed || !group[i].bare
			}
		}
		switch {
		case framed:
			j.c.framed++
		case sound:
			j.c.bodies++
		}
	})
}

// isSound reports whether a claim is all that the proven entry is.
func (j *judge) isSound(c *claim, is node) bool { return c.leaf == is.leaf && j.wrong(c) == "" }

// proven judges the claims on an entry under a signed root.
func (j *judge) proven(group []claim, is node) {
	sound := slices.ContainsFunc(group, func(c claim) bool { return j.isSound(&c, is) })
	for i := range group {
		c, other := &group[i], ""
		switch {
		case c.leaf != is.leaf:
			other = "another event of the same entry has other content"
		case c.root != (tlog.Hash{}) && c.root != is.root:
			other = "another event of the same entry names another tree"
		}
		wrong := j.wrong(c)
		switch {
		case other != "":
			j.refuse(c, other)
		case wrong != "" && c.bare && sound: // the entry itself is here too
			j.refuse(c, wrong)
		default:
			j.take(c, wrong)
		}
	}
}

// isStray sorts out a body without attributes that claims an entry under no signed root, and
// does not continue the tree: nobody can say that it is more than an imitation.
func (j *judge) isStray(c claim) bool {
	stray := c.bare && c.n >= j.covered && (c.n >= j.reached || c.wrong != "" || j.covered == 0 && !j.joins)
	if stray {
		j.refuse(&c, "no signed root covers it, and it does not continue the tree")
	}
	return stray
}

func (j *judge) unproven(group []claim) {
	for i := range group {
		if i > 0 && group[i].leaf != group[i-1].leaf {
			j.refuse(&group[i], "another event of the same entry has other content")
			continue
		}
		j.take(&group[i], j.wrong(&group[i]))
	}
}

// wrong is why a claim's content or attributes are not those of the entry; empty if they are.
func (j *judge) wrong(c *claim) string {
	if c.wrong == "" && c.name != "" && j.name != "" && c.name != j.name {
		return fmt.Sprintf("its id begins with %q, and the id of an entry of this log with %q", c.name, j.name)
	}
	return c.wrong
}

func (j *judge) refuse(c *claim, why string) { j.c.refuse(j.l.origin, c, j.l.base+c.n, why) }

// take takes an event for its entry's.
func (j *judge) take(c *claim, wrong string) {
	index := j.l.base + c.n
	switch {
	case wrong != "":
		j.l.report.Integrity.run(proof.KindAltered, j.l.origin, index, index, "", "%s", wrong)
	case c.omitted:
		j.l.report.Completeness.run(proof.KindOmitted, j.l.origin, index, index, "",
			"its event leaves parts of the entry out, and gives their hash: so nothing vouches for its type, time and other members")
	}
	if c.fact == nil {
		return
	}
	j.c.facts = append(j.c.facts, *c.fact)
	if j.l.trusted && c.n < int64(len(j.settled)) {
		if key := c.fact.nextKey(); key != "" {
			j.c.endorsed = append(j.c.endorsed, key)
		}
	}
}
