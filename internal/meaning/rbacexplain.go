package meaning

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/auditrelay/auditrelay/internal/json/jsondiff"
)

// comparison compares two policies.
type comparison struct {
	*collector
	before, after *policy
	// added and removed are the actions listed by a resource on one side only.
	added, removed map[string][]string
}

func explainRBAC(c *collector, before, after any) {
	a, b := readPolicy(before), readPolicy(after)
	x := comparison{c, a, b, listedBeyond(b, a), listedBeyond(a, b)}
	for _, h := range x.holders() {
		x.holder(h)
	}
	for _, id := range sortedUnion(a.resources, b.resources) {
		x.resource(id, a.resources[id], b.resources[id])
	}
}

// holders gives the holders of both policies in a fixed order: default roles, roles,
// scopes.
func (x comparison) holders() []holder {
	all := slices.AppendSeq(slices.Collect(maps.Keys(x.before.holders)), maps.Keys(x.after.holders))
	slices.SortFunc(all, func(a, b holder) int {
		return cmp.Or(compareText(a.kind, b.kind), compareText(a.name, b.name), compareText(a.path, b.path))
	})
	return slices.Compact(all)
}

func (x comparison) holder(h holder) {
	a, b := x.before.holders[h], x.after.holders[h]
	switch {
	case a == nil:
		x.add("rbac.holder_changed", func() Statement { return Statement{Sentence: h.String() + " added", Path: h.path} })
		a = &granted{}
	case b == nil:
		x.add("rbac.holder_changed", func() Statement { return Statement{Sentence: h.String() + " removed", Path: h.path} })
		b = &granted{}
	case !slices.Equal(a.descriptions, b.descriptions):
		x.described("rbac.holder_changed", h.String(), h.path, a.descriptions, b.descriptions)
	}
	for _, id := range sortedUnion(a.permissions, b.permissions) {
		x.pair(h, id, side{a.permissions[id], x.before.resources[id]}, side{b.permissions[id], x.after.resources[id]})
	}
}

// pair compares a holder's permissions on a resource.
func (x comparison) pair(h holder, id string, a, b side) {
	gained, more := b.beyond(a, x.added[id])
	lost, fewer := a.beyond(b, x.removed[id])
	path := func() string { return h.path + "/permissions/resource_id=" + jsondiff.Escape(id) + "/actions" }
	if more > 0 {
		x.add(gainedRule(h, a, b), func() Statement {
			return Statement{
				Sentence: fmt.Sprintf("%s gained %s on %s", h, several(gained, more), quote(id)) + byWildcard(a, b),
				Path:     path(), Witness: witnessed(h, "may now", gained[0], id),
			}
		})
	}
	if fewer > 0 {
		x.add("rbac.lost", func() Statement {
			return Statement{
				Sentence: fmt.Sprintf("%s lost %s on %s", h, several(lost, fewer), quote(id)) + byWildcard(b, a),
				Path:     path(), Witness: witnessed(h, "may no longer", lost[0], id),
			}
		})
	}
	told := x.uncertain(h, id, path(), a, b)
	if more == 0 && fewer == 0 && !told && (a.all() != b.all() || !maps.Equal(a.named(), b.named())) {
		x.withoutEffect(h, id, path(), a, b)
	}
}

// uncertain adds statements on permissions missing from the policy's own lists. The
// service may grant them all the same.
func (x comparison) uncertain(h holder, id, path string, a, b side) (told bool) {
	rule, verb, behind := "rbac.unlisted_action", "gained", ", which lists no such action"
	names := b.unlisted(a)
	if !b.defined() {
		rule, behind = "rbac.undefined_resource", ", a resource that no list defines"
		if names = b.newlyNamed(a); len(names) == 0 && !a.defined() {
			verb, names = "lost", a.newlyNamed(b)
		}
		if id == wildcard {
			rule, behind = "rbac.wildcard_resource", ", which the service may take for every resource"
		}
	}
	if len(names) == 0 {
		return false
	}
	x.add(rule, func() Statement {
		return Statement{Sentence: fmt.Sprintf("%s %s %s on %s", h, verb, several(firstFew(names), len(names)), quote(id)) + behind, Path: path}
	})
	return true
}

// withoutEffect tells of different permissions with the same effect.
func (x comparison) withoutEffect(h holder, id, path string, a, b side) {
	rule, sentence := "rbac.no_effect", fmt.Sprintf("permissions of %s on %s are written differently and permit the same", h, quote(id))
	if b.defined() && b.all() && !a.all() {
		rule = "rbac.wildcard_named"
		sentence = fmt.Sprintf("%s has the wildcard `*` on %s now: it permits no more yet, and every action listed later", h, quote(id))
	}
	x.add(rule, func() Statement { return Statement{Sentence: sentence, Path: path} })
}

func gainedRule(h holder, a, b side) string {
	switch {
	case h.kind == defaultRole:
		return "rbac.default_role_gained"
	case b.all() && !a.all():
		return "rbac.wildcard_gained"
	case h.kind == customScope:
		return "rbac.scope_gained"
	}
	return "rbac.role_gained"
}

// byWildcard tells of a new wildcard in b.
func byWildcard(a, b side) string {
	if b.all() && !a.all() {
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
	name, path := "resource "+quote(id), "/custom_resources/resource_id="+cutPath(jsondiff.Escape(id))
	switch {
	case a == nil:
		x.add(rule, func() Statement {
			return Statement{Sentence: name + " added, with " + plural(len(b.sorted), "action", "actions"), Path: path}
		})
		return
	case b == nil:
		x.add(rule, func() Statement { return Statement{Sentence: name + " removed", Path: path} })
		return
	case !slices.Equal(a.descriptions, b.descriptions):
		x.described(rule, name, path, a.descriptions, b.descriptions)
	}
	if added := x.added[id]; len(added) > 0 {
		x.add(rule, func() Statement {
			return Statement{Sentence: name + " now lists " + several(firstFew(added), len(added)), Path: path + "/available_actions"}
		})
	}
	if removed := x.removed[id]; len(removed) > 0 {
		x.add(rule, func() Statement {
			return Statement{Sentence: name + " no longer lists " + several(firstFew(removed), len(removed)), Path: path + "/available_actions"}
		})
	}
}

// described tells of another description. Two entries with one id have two.
func (x comparison) described(rule, name, path string, old, now []string) {
	x.add(rule, func() Statement {
		return Statement{Sentence: "description of " + name + " changed", Path: path + "/description", Old: only(old), New: only(now)}
	})
}
