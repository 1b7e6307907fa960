package meaning

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/auditrelay/auditrelay/internal/jsontext"
)

// maxNamed is how many actions a sentence names.
const maxNamed = 3

// verdict says whether a holder may do an action on a resource.
type verdict int

const (
	no verdict = iota
	// perhaps: there is a permission, but not by the policy's own lists, or only on the
	// resource "*". The document does not say what the service makes of it.
	perhaps
	certain
)

// side is one policy's word on a holder and a resource. Each part may be nil.
type side struct {
	grant    *grant // the holder's permission on the resource
	every    *grant // the one on "*", which the service may take for every resource
	resource *resource
}

// may is the one place that decides what a policy permits: both [WhoCan] and the reading of
// a change ask it.
func (s side) may(action string) verdict {
	switch {
	case s.grant.grants(action) && s.resource.lists(action):
		return certain
	case s.grant.grants(action), s.every.grants(action):
		return perhaps
	}
	return no
}

// side is a policy's word on a holder and a resource.
func (p *policy) side(h holder, id string) side {
	s := side{resource: p.resources[id]}
	if g := p.holders[h]; g != nil {
		s.grant, s.every = g.permissions[id], g.permissions[wildcard]
	}
	return s
}

// verdict is [side.may], with the wildcard as an action of its own: it is there or not.
func (s side) verdict(action string) verdict {
	if action == wildcard && s.grant.wild() && s.resource != nil {
		return certain
	}
	return s.may(action)
}

// anyOther is an action that no policy names, and no list has: JSON has no such string. Its
// verdict is the one of all such actions.
const anyOther = "\xff"

func (g *grant) grants(action string) bool { return g.wild() || g.names(action) }

// wild reports whether a permission has the wildcard.
func (g *grant) wild() bool { return g != nil && g.all }

func (g *grant) names(action string) bool { return g != nil && g.actions[action] }

func (r *resource) lists(action string) bool { return r != nil && r.available[action] }

func (s side) named() map[string]bool {
	if s.grant == nil {
		return nil
	}
	return s.grant.actions
}

// some reports whether a holder has any permission, be it one that counts only perhaps.
func (g *granted) some() bool {
	for _, permission := range g.permissions {
		if len(permission.actions) > 0 {
			return true
		}
	}
	return false
}

// someCertain reports whether a holder may do anything for certain.
func (g *granted) someCertain(p *policy) bool {
	if g == nil {
		return false
	}
	for id, permission := range g.permissions {
		r := p.resources[id]
		if r == nil {
			continue
		}
		if permission.all && len(r.available) > 0 {
			return true
		}
		for action := range permission.actions {
			if r.available[action] {
				return true
			}
		}
	}
	return false
}

// shift is what became of an action.
type shift struct{ from, to verdict }

// shifts are the actions of each shift, where the two verdicts differ.
type shifts map[shift]*actions

// actions are the first few of some actions, and the number of all.
type actions struct {
	first []string
	n     int
}

func (s shifts) add(of shift, n int, names ...string) {
	if of.from == of.to || n == 0 {
		return
	}
	if s[of] == nil {
		s[of] = &actions{}
	}
	s[of].first, s[of].n = append(s[of].first, names...), s[of].n+n
}

// of joins the actions of several shifts, in order.
func (s shifts) of(kinds ...shift) actions {
	var all actions
	for _, kind := range kinds {
		if found := s[kind]; found != nil {
			all.first, all.n = append(all.first, found.first...), all.n+found.n
		}
	}
	slices.Sort(all.first)
	all.first = firstFew(all.first)
	return all
}

// shifts compares two sides of a holder and the resource id. It takes time for the named
// actions, not for all those of a wildcard: of these, all that no permission names share
// one verdict on each side, as far as the same lists have them.
func (x comparison) shifts(id string, a, b side, alone map[string]bool) shifts {
	found := shifts{}
	for action := range alone {
		found.add(shift{a.may(action), b.may(action)}, 1, action)
	}
	if a.grant.wild() || b.grant.wild() {
		for _, list := range [][]string{x.both(id), x.added[id], x.removed[id]} {
			first, n := without(list, alone)
			if n > 0 {
				found.add(shift{a.may(first[0]), b.may(first[0])}, n, first...)
			}
		}
	}
	return found
}

// alone are the actions to be judged one by one: those named by the holder. The wildcard
// is one of them only where a list has it.
func (x comparison) alone(a, b side) map[string]bool {
	listed := func(action string) bool { return a.resource.lists(action) || b.resource.lists(action) }
	alone := map[string]bool{}
	for _, named := range []map[string]bool{a.named(), b.named()} {
		for action := range named {
			if action != wildcard || listed(action) {
				alone[action] = true
			}
		}
	}
	if a.grant.wild() == b.grant.wild() {
		return alone // a permission on "*" makes no difference between listed actions
	}
	for _, every := range []*grant{a.every, b.every} {
		if every == nil {
			continue
		}
		for action := range every.actions {
			if action != wildcard && listed(action) {
				alone[action] = true
			}
		}
	}
	return alone
}

// without returns the first few of a list that are not among others, and their number.
func without(list []string, others map[string]bool) (first []string, n int) {
	for _, action := range list {
		if len(first) == maxNamed {
			break
		}
		if !others[action] {
			first = append(first, action)
		}
	}
	n = len(list)
	for action := range others {
		if _, found := slices.BinarySearch(list, action); found {
			n--
		}
	}
	return first, n
}

func firstFew(names []string) []string { return names[:min(len(names), maxNamed)] }

// both are the actions that a resource lists on both sides, sorted.
func (x comparison) both(id string) []string {
	if list, known := x.common[id]; known {
		return list
	}
	var list []string
	if a, b := x.before.resources[id], x.after.resources[id]; a != nil && b != nil {
		for _, action := range a.sorted {
			if b.available[action] {
				list = append(list, action)
			}
		}
	}
	x.common[id] = list
	return list
}

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

// Answer is who an RBAC policy lets do something.
type Answer struct {
	// Who is sorted: default roles, roles, scopes.
	Who []Permit `json:"who"`
	// Perhaps are those with a permission missing from the policy's lists. Whether the
	// service grants it is not documented.
	Perhaps []Permit `json:"perhaps,omitempty"`
	// Nobody says why, where Who is empty.
	Nobody string `json:"nobody,omitempty"`
}

// Permit is a holder of permissions, with the one permitting the action.
type Permit struct {
	// Holder is the name for a sentence: "role `admin`". Kind is "default role", "role" or
	// "scope".
	Holder string `json:"holder"`
	Kind   string `json:"kind"`
	Name   string `json:"name"`
	// By is the permission: the action itself, or the wildcard.
	By   string `json:"by"`
	Path string `json:"path"`
}

// WhoCan says who may do an action on a resource, by an RBAC policy as it stands in the
// trail, by the same model as [Read]. An action of "*" asks for the wildcard itself. A state other than a policy lets nobody do anything.
func WhoCan(state json.RawMessage, action, id string) (Answer, error) {
	a := Answer{Who: []Permit{}}
	s, err := jsontext.Read(state)
	if err != nil {
		return a, fmt.Errorf("read the policy: %w", err)
	}
	p := readPolicy(s.Value)
	for h := range p.holders {
		x := p.side(h, id)
		permit := Permit{Holder: h.String(), Kind: h.kind, Name: h.name, Path: h.path, By: x.by(action, id)}
		switch x.verdict(action) {
		case certain:
			a.Who = append(a.Who, permit)
		case perhaps:
			permit.By += x.doubt(action)
			a.Perhaps = append(a.Perhaps, permit)
		}
	}
	sortPermits(a.Who)
	sortPermits(a.Perhaps)
	if len(a.Who) == 0 {
		a.Nobody = p.nobody(action, id)
	}
	return a, nil
}

func sortPermits(list []Permit) {
	slices.SortFunc(list, func(x, y Permit) int {
		return cmp.Or(cmp.Compare(x.Kind, y.Kind), cmp.Compare(x.Name, y.Name), cmp.Compare(x.Path, y.Path))
	})
}

// by names the permission for an action.
func (s side) by(action, id string) string {
	g := s.grant
	if !g.grants(action) {
		g, id = s.every, wildcard
	}
	if g.names(action) && action != wildcard {
		return "permission for " + quote(action) + " on " + quote(id)
	}
	return "wildcard `*` on " + quote(id)
}

// doubt says why a permission counts only perhaps.
func (s side) doubt(action string) string {
	if s.grant.grants(action) {
		return ", which no list has"
	}
	return ", if the service takes that for every resource"
}

// nobody says why no holder may do an action.
func (p *policy) nobody(action, id string) string {
	r := p.resources[id]
	switch {
	case len(p.resources) == 0:
		return "the policy defines no resources"
	case r == nil:
		names := slices.Sorted(maps.Keys(p.resources))
		return "the policy defines no resource " + quote(id) + "; it has " + several(firstFew(names), len(names))
	case len(r.sorted) == 0:
		return "the resource " + quote(id) + " lists no actions"
	case !r.available[action]:
		return "the resource " + quote(id) + " lists no action " + quote(action) + "; it lists " + several(firstFew(r.sorted), len(r.sorted))
	}
	return "no role and no scope has a permission for " + quote(action) + " on " + quote(id)
}
