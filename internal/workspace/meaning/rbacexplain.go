package meaning

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/auditrelay/auditrelay/internal/jsontext"
)

// comparison compares two policies.
type comparison struct {
	*collector
	before, after *policy
	// added and removed are the actions listed by a resource on one side only.
	added, removed map[string][]string
	common         map[string][]string // listed on both sides, by resource, once asked for
}

func explainRBAC(c *collector, before, after any) {
	a, b := readPolicy(before), readPolicy(after)
	x := comparison{c, a, b, listedBeyond(b, a), listedBeyond(a, b), map[string][]string{}}
	for _, h := range allHolders(a, b) {
		x.holder(h)
	}
	for _, id := range sortedUnion(a.resources, b.resources) {
		x.resource(id, a.resources[id], b.resources[id])
	}
}

// allHolders gives the holders of both policies in a fixed order: default roles, roles,
// scopes.
func allHolders(before, after *policy) []holder {
	all := slices.AppendSeq(slices.Collect(maps.Keys(before.holders)), maps.Keys(after.holders))
	slices.SortFunc(all, func(a, b holder) int {
		return cmp.Or(cmp.Compare(a.kind, b.kind), cmp.Compare(a.name, b.name), cmp.Compare(a.path, b.path))
	})
	return slices.Compact(all)
}

func (x comparison) holder(h holder) {
	a, b := x.before.holders[h], x.after.holders[h]
	switch {
	case a == nil:
		x.add("rbac.holder_changed", Statement{Sentence: h.String() + " added", Path: h.path})
		a = &granted{}
	case b == nil:
		x.add("rbac.holder_changed", Statement{Sentence: h.String() + " removed", Path: h.path})
		b = &granted{}
	case !slices.Equal(a.descriptions, b.descriptions):
		x.described("rbac.holder_changed", h.String(), h.path, a.descriptions, b.descriptions)
	}
	lost := false
	for _, id := range sortedUnion(a.permissions, b.permissions) {
		lost = x.pair(h, id, x.before.side(h, id), x.after.side(h, id)) || lost
	}
	if h.kind == defaultRole && (a.someCertain(x.before) && !b.someCertain(x.after) || a.some() && !b.some()) {
		x.lockedOut(h, lost)
	}
}

// lockedOut tells of a default role that may do nothing for certain any more. lost: it lost
// something for certain, too.
func (x comparison) lockedOut(h holder, lost bool) {
	rule, witness := "rbac.lockout_perhaps", ""
	if lost {
		rule, witness = "rbac.lockout", "whoever is "+quote(h.name)+" may do nothing for certain now"
	}
	x.add(rule, Statement{Sentence: "lockout: " + h.String() + " has no permission left for certain", Path: h.path, Witness: witness})
}

// pair compares a holder's permissions on a resource. It reports whether something was lost
// for certain.
func (x comparison) pair(h holder, id string, a, b side) bool {
	alone := x.alone(a, b)
	p := pair{x, h, id, a, b, alone, x.shifts(id, a, b, alone)}
	gained := p.shifts.of(shift{no, certain}, shift{perhaps, certain})
	lost := p.shifts.of(shift{certain, no})
	p.say(gainedRule(h, a, b), gained, "%s gained %s on %s"+byWildcard(a, b), "may now")
	p.say("rbac.lost", lost, "%s lost %s on %s"+byWildcard(b, a), "may no longer")
	p.say("rbac.uncertain", p.shifts.of(shift{certain, perhaps}), "%s may do %s on %s no longer for certain, and perhaps still", "")
	told := p.perhaps(gained.n > 0, lost.n > 0)
	if len(p.shifts) == 0 && !told && (a.grant.wild() != b.grant.wild() || !maps.Equal(a.named(), b.named())) {
		p.say("rbac.no_effect", one, "permissions of %[1]s on %[3]s are written differently and permit the same", "")
	}
	return lost.n > 0
}

// pair is a holder and a resource, in two policies.
type pair struct {
	comparison
	holder holder
	id     string
	a, b   side
	alone  map[string]bool // see [comparison.alone]
	shifts shifts
}

// one is for statements that name no actions.
var one = actions{n: 1}

// say adds a statement about actions, if there are any. The sentence has places for the holder,
// the actions and the resource. The witness says what the holder may, with the first action; it
// is empty for none.
func (p pair) say(rule string, about actions, sentence, may string) {
	if about.n == 0 {
		return
	}
	witness := ""
	if may != "" {
		witness = witnessed(p.holder, may, about.first[0], p.id)
	}
	p.add(rule, Statement{
		Sentence: fmt.Sprintf(sentence, p.holder, several(about.first, about.n), quote(p.id)),
		Path:     p.holder.path + "/permissions/resource_id=" + jsontext.Escape(p.id) + "/actions", Witness: witness,
	})
}

// perhaps tells which permissions came or went that count only perhaps. Those by a
// permission on "*" are told once, there, and not at each resource.
func (p pair) perhaps(gained, lost bool) (told bool) {
	if p.id == wildcard {
		return p.every()
	}
	came, went := p.owned(shift{no, perhaps}, p.b), p.owned(shift{perhaps, no}, p.a)
	rule, why := "rbac.unlisted_action", ", which lists no such action"
	if p.b.resource == nil {
		rule, why = "rbac.undefined_resource", ", a resource that no list defines"
	}
	p.say(rule, came, "%s gained %s on %s"+why, "")
	p.say("rbac.perhaps_lost", went, "%s lost %s on %s, which it held only perhaps", "")
	return p.wildcard(came.n > 0 || gained, went.n > 0 || lost) || came.n+went.n > 0
}

// owned are the actions of a shift that the holder's permission on this very resource
// makes, as one side has it.
func (p pair) owned(kind shift, by side) actions {
	var names []string
	for action := range p.alone {
		if kind == (shift{p.a.may(action), p.b.may(action)}) && by.grant.grants(action) {
			names = append(names, action)
		}
	}
	if by.grant.wild() && by.resource == nil && kind == p.others() {
		names = append(names, wildcard)
	}
	slices.Sort(names)
	return actions{firstFew(names), len(names)}
}

// others is the shift of all actions that nothing names.
func (p pair) others() shift { return shift{p.a.may(anyOther), p.b.may(anyOther)} }

// wildcard tells of a wildcard that came or went on a defined resource. What it makes of
// unlisted actions is no statement of its own where there are others about it.
func (p pair) wildcard(gained, lost bool) (told bool) {
	came := p.others() == shift{no, perhaps} && p.b.grant.wild() && p.b.resource != nil && !gained
	went := p.others() == shift{perhaps, no} && p.a.grant.wild() && p.a.resource != nil && !lost
	switch {
	case came:
		p.say("rbac.wildcard_named", one, "%[1]s has the wildcard `*` on %[3]s now: it permits no more yet, and every action listed later", "")
	case went:
		p.say("rbac.wildcard_spelled_out", one, "%[1]s has the wildcard `*` on %[3]s no longer: it permits no less yet, and no action listed later", "")
	}
	return came || went
}

// every tells what became of a permission on "*", for all resources that no other
// permission of the holder names.
func (p pair) every() (told bool) {
	a, b := side{every: p.a.grant}, side{every: p.b.grant}
	found := shifts{}
	for action := range p.alone {
		found.add(shift{a.may(action), b.may(action)}, 1, action)
	}
	found.add(shift{a.may(anyOther), b.may(anyOther)}, 1, wildcard)
	came, went := found.of(shift{no, perhaps}), found.of(shift{perhaps, no})
	p.say("rbac.wildcard_resource", came, "%s gained %s on %s, which the service may take for every resource", "")
	p.say("rbac.perhaps_lost", went, "%s lost %s on %s, which the service may have taken for every resource", "")
	return came.n+went.n > 0
}

func gainedRule(h holder, a, b side) string {
	switch {
	case h.kind == defaultRole:
		return "rbac.default_role_gained"
	case b.grant.wild() && !a.grant.wild():
		return "rbac.wildcard_gained"
	case h.kind == customScope:
		return "rbac.scope_gained"
	}
	return "rbac.role_gained"
}

// byWildcard tells of a new wildcard in b.
func byWildcard(a, b side) string {
	if b.grant.wild() && !a.grant.wild() {
		return ", by the wildcard `*`"
	}
	return ""
}

func witnessed(h holder, may, action, resource string) string {
	who := quote(h.name)
	if h.kind == customScope {
		who = "scope " + who
	}
	return fmt.Sprintf("%s %s %s %s", who, may, quote(action), quote(resource))
}

// resource tells how the definition of a resource changed.
func (x comparison) resource(id string, a, b *resource) {
	const rule = "rbac.resource_changed"
	name, path := "resource "+quote(id), "/custom_resources/resource_id="+cutPath(jsontext.Escape(id))
	switch {
	case a == nil:
		x.add(rule, Statement{Sentence: name + " added, with " + plural(len(b.sorted), "action", "actions"), Path: path})
		return
	case b == nil:
		x.add(rule, Statement{Sentence: name + " removed", Path: path})
		return
	case !slices.Equal(a.descriptions, b.descriptions):
		x.described(rule, name, path, a.descriptions, b.descriptions)
	}
	for _, list := range []struct {
		verb    string
		actions []string
	}{{"now lists", x.added[id]}, {"no longer lists", x.removed[id]}} {
		if n := len(list.actions); n > 0 {
			x.add(rule, Statement{Sentence: name + " " + list.verb + " " + several(firstFew(list.actions), n), Path: path + "/available_actions"})
		}
	}
}

// described tells of another description. Two entries with one id have two.
func (x comparison) described(rule, name, path string, old, now []string) {
	x.add(rule, Statement{Sentence: "description of " + name + " changed", Path: path + "/description", Old: only(old), New: only(now)})
}
