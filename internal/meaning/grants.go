package meaning

import (
	"maps"
	"slices"
)

// maxNamed is how many actions a sentence names.
const maxNamed = 3

// side is one state's word on a holder and a resource. Either may be nil.
type side struct {
	grant    *grant
	resource *resource
}

func (s side) all() bool { return s.grant != nil && s.grant.all }

func (s side) defined() bool { return s.resource != nil }

func (s side) named() map[string]bool {
	if s.grant == nil {
		return nil
	}
	return s.grant.actions
}

// permits reports whether the holder may do the action.
func (s side) permits(action string) bool {
	return s.resource != nil && s.resource.available[action] && (s.all() || s.named()[action])
}

// beyond returns actions permitted by s and not by other: the first few, and their
// number. It takes time for the named actions, not for all those of a wildcard. listed
// are the resource's actions in s beyond the other's.
func (s side) beyond(other side, listed []string) (first []string, n int) {
	if s.resource == nil || s.grant == nil {
		return nil, 0
	}
	switch {
	case s.all() && other.all():
		return firstFew(listed), len(listed)
	case s.all():
		return s.allBeyond(other)
	}
	for action := range s.named() {
		if s.permits(action) && !other.permits(action) {
			first = append(first, action)
		}
	}
	slices.Sort(first)
	return firstFew(first), len(first)
}

// allBeyond is beyond for a wildcard against named actions.
func (s side) allBeyond(other side) (first []string, n int) {
	n = len(s.resource.sorted)
	for action := range other.named() {
		if s.resource.available[action] && other.permits(action) {
			n--
		}
	}
	for _, action := range s.resource.sorted {
		if len(first) == maxNamed {
			break
		}
		if !other.permits(action) {
			first = append(first, action)
		}
	}
	return first, n
}

// unlisted are actions named by s, not by other, not even by its wildcard, and not listed
// by the resource.
func (s side) unlisted(other side) []string {
	var names []string
	for action := range s.named() {
		if action != wildcard && s.resource != nil && !s.resource.available[action] && !other.named()[action] && !other.all() {
			names = append(names, action)
		}
	}
	slices.Sort(names)
	return names
}

// newlyNamed are the actions named by s and not by other, the wildcard among them.
func (s side) newlyNamed(other side) []string {
	var names []string
	for action := range s.named() {
		if !other.named()[action] {
			names = append(names, action)
		}
	}
	slices.Sort(names)
	return names
}

func firstFew(names []string) []string { return names[:min(len(names), maxNamed)] }

// listedBeyond returns the actions listed in one policy only, for each resource.
func listedBeyond(p, other *policy) map[string][]string {
	m := map[string][]string{}
	for id, r := range p.resources {
		for _, action := range r.sorted {
			if o := other.resources[id]; o == nil || !o.available[action] {
				m[id] = append(m[id], action)
			}
		}
	}
	return m
}

// sortedUnion gives the keys of both maps.
func sortedUnion[V any](a, b map[string]V) []string {
	names := slices.AppendSeq(slices.Collect(maps.Keys(a)), maps.Keys(b))
	slices.Sort(names)
	return slices.Compact(names)
}
