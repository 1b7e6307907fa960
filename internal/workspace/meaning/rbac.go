package meaning

import (
	"maps"
	"slices"
	"strings"

	"github.com/auditrelay/auditrelay/internal/jsontext"
)

// wildcard in a permission's actions stands for every action listed by the resource. In a
// resource's id and in available_actions it is a name like any other, as the document
// gives it no meaning there; but the service may take a permission on the resource "*" for
// one on every resource. See [side.may].
const wildcard = "*"

// policy is the content of an RBAC policy: the existing actions, and the holders'
// permissions. A triple (holder, resource, action) is permitted for certain if a permission
// of the holder names the action or the wildcard, and a list of resources defines the
// resource with the action. Two entries with one id count together.
type policy struct {
	resources map[string]*resource
	holders   map[holder]*granted
}

type resource struct {
	available    map[string]bool
	sorted       []string // available
	descriptions []string
}

// holder has permissions: a default role, a custom role or a scope.
type holder struct {
	kind string // the word before its name in a sentence
	name string
	path string // its place in the state
}

func (h holder) String() string { return h.kind + " " + quote(h.name) }

// The kinds of holders, as they are called in sentences.
const (
	defaultRole = "default role"
	customRole  = "role"
	customScope = "scope"
)

// granted are a holder's permissions by resource.
type granted struct {
	permissions  map[string]*grant
	descriptions []string
}

type grant struct {
	all     bool // by the wildcard
	actions map[string]bool
}

// rbacShape knows the members with the provider's brand in their names by their ends. It has a
// member for each further object with permissions, too: the service may have more default roles
// than the document names.
func rbacShape(v any) *shape {
	permissions := listBy("resource_id", object(map[string]*shape{"resource_id": text, "actions": list(text)}))
	held := func(key string) *shape {
		return listBy(key, object(map[string]*shape{key: text, "description": text, "permissions": permissions}))
	}
	resources := listBy("resource_id", object(map[string]*shape{"resource_id": text, "description": text, "available_actions": list(text)}))
	s := object(map[string]*shape{"custom_roles": held("role_id"), "custom_scopes": held("scope")})
	s.Suffixes = map[string]*shape{resourcesEnd: resources}
	for _, end := range defaultRoleEnds {
		s.Suffixes[end] = object(map[string]*shape{"permissions": permissions})
	}
	root, _ := v.(map[string]any)
	for name, member := range root {
		if s.Member(name) == nil && hasPermissions(member) {
			s.Members[name] = object(map[string]*shape{"permissions": permissions})
		}
	}
	return s
}

func hasPermissions(v any) bool {
	_, is := memberOf(v, "permissions").([]any)
	return is
}

// The ends of the members with the provider's brand before them. "custom_resources" ends
// so too.
const resourcesEnd = "_resources"

var defaultRoleEnds = []string{"_member", "_admin", "_user"}

func readPolicy(state any) *policy {
	p := &policy{resources: map[string]*resource{}, holders: map[holder]*granted{}}
	root, _ := state.(map[string]any)
	for name, v := range root {
		switch {
		case name == "custom_roles":
			p.readHolders(v, customRole, name, "role_id")
		case name == "custom_scopes":
			p.readHolders(v, customScope, name, "scope")
		case strings.HasSuffix(name, resourcesEnd):
			p.readResources(v)
		default:
			p.readDefaultRole(name, v)
		}
	}
	for _, r := range p.resources {
		r.sorted = slices.Sorted(maps.Keys(r.available))
		slices.Sort(r.descriptions)
	}
	for _, g := range p.holders {
		slices.Sort(g.descriptions)
	}
	return p
}

// readDefaultRole reads a member with the brand in its name. The brand, up to the first
// "_", is not told.
func (p *policy) readDefaultRole(name string, v any) {
	object, ok := v.(map[string]any)
	known := slices.ContainsFunc(defaultRoleEnds, func(end string) bool { return strings.HasSuffix(name, end) })
	if ok && (known || hasPermissions(v)) {
		role := name[strings.IndexByte(name, '_')+1:]
		p.holder(holder{defaultRole, role, "/" + cutPath(jsontext.Escape(name))}).read(object)
	}
}

func (p *policy) readHolders(v any, kind, name, key string) {
	for _, o := range objects(v) {
		if id, ok := o[key].(string); ok {
			p.holder(holder{kind, id, "/" + name + "/" + key + "=" + cutPath(jsontext.Escape(id))}).read(o)
		}
	}
}

func (p *policy) holder(h holder) *granted {
	if p.holders[h] == nil {
		p.holders[h] = &granted{permissions: map[string]*grant{}}
	}
	return p.holders[h]
}

func (g *granted) read(o map[string]any) {
	if description, ok := o["description"].(string); ok {
		g.descriptions = append(g.descriptions, description)
	}
	for _, permission := range objects(o["permissions"]) {
		id, ok := permission["resource_id"].(string)
		if !ok {
			continue
		}
		if g.permissions[id] == nil {
			g.permissions[id] = &grant{actions: map[string]bool{}}
		}
		for _, action := range stringsOf(permission["actions"]) {
			g.permissions[id].all = g.permissions[id].all || action == wildcard
			g.permissions[id].actions[action] = true
		}
	}
}

func (p *policy) readResources(v any) {
	for _, o := range objects(v) {
		id, ok := o["resource_id"].(string)
		if !ok {
			continue
		}
		r := p.resources[id]
		if r == nil {
			r = &resource{available: map[string]bool{}}
			p.resources[id] = r
		}
		if description, ok := o["description"].(string); ok {
			r.descriptions = append(r.descriptions, description)
		}
		for _, action := range stringsOf(o["available_actions"]) {
			r.available[action] = true
		}
	}
}

var rbacRules = []Rule{
	{"rbac.default_role_gained", Weaker, High, "A default role permits an action that it did not.", "Default roles are held without being assigned one by one, so many gain the action at once."},
	{"rbac.wildcard_gained", Weaker, High, "A role or scope gained the wildcard `*` on a resource.", "It includes every action that the resource gets later."},
	{"rbac.role_gained", Weaker, Medium, "A custom role permits an action that it did not.", "All who have the role can do more."},
	{"rbac.scope_gained", Weaker, Medium, "A scope permits an action that it did not.", "Applications with the scope can do more."},
	{"rbac.lockout", Stronger, High, "A default role lost its last certain permissions.", "Its holders, administrators among them, are locked out, perhaps by an attacker."},
	{"rbac.lockout_perhaps", Unknown, High, "All certain permissions of a default role count only perhaps now, or it has lost all that counted perhaps.", "Its holders, administrators among them, may be locked out, perhaps by an attacker."},
	{"rbac.uncertain", Unknown, Medium, "A role or scope keeps a permission for an action that no list has any more.", "Whether the service still grants it is not documented: it may only look taken away."},
	{"rbac.perhaps_lost", Unknown, Low, "A permission went that counted only perhaps.", "Nothing new is permitted; whether less is, is not documented."},
	{"rbac.lost", Stronger, Low, "A role or scope no longer permits an action.", "Less is permitted; someone may be locked out."},
	{"rbac.undefined_resource", Unknown, Medium, "A permission came on a resource that no list defines.", "The service may know resources that the policy does not list."},
	{"rbac.unlisted_action", Unknown, Medium, "A role or scope gained an action that its resource does not list.", "Whether the service holds actions against the list is not documented."},
	{"rbac.wildcard_resource", Unknown, High, "A permission came on the resource `*`.", "The service may take it for every resource."},
	{"rbac.wildcard_named", Unknown, Low, "The wildcard `*` took the place of all actions of a resource.", "It permits the same of the list, every action listed later, and perhaps some that are never listed."},
	{"rbac.wildcard_spelled_out", Unknown, Low, "All actions of a resource took the place of the wildcard `*`.", "They permit the same of the list, and perhaps less beyond it."},
	{"rbac.no_effect", Neutral, Info, "Permissions are written differently.", "They permit the same."},
	{"rbac.holder_changed", Neutral, Info, "A role or scope was added, removed or described differently.", "What it permits is told by statements of their own."},
	{"rbac.resource_changed", Neutral, Info, "A resource was added, removed or described differently, or lists other actions.", "What roles gain by it is told by statements of their own."},
}
