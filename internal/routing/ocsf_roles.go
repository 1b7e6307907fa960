package routing

import (
	"encoding/json"
	"slices"
	"strings"
)

// maxRoles bounds the roles in an object's name; unmapped.roles has up to maxListed.
const (
	maxRoles  = 8
	maxListed = 100
)

// roles makes o a Role Management, if a change of the RBAC policy is about roles. The class has
// room for one role, so several share its name, and unmapped.roles has each.
func (o *ocsfObject) roles(x *trailEntry) bool {
	names := rolesIn(x.detail.Changes)
	if len(names) == 0 {
		return false
	}
	o.is(roleManagement, activityUpdateRole, "")
	o.ended(statusSuccess, "")
	o.Actor = x.actor
	o.Unmapped.Roles = names
	name := strings.Join(names[:min(len(names), maxRoles)], ", ")
	of := func(state json.RawMessage) *role {
		return &role{Name: name, Policies: []policy{{Name: x.Subject, UID: x.uid, Data: state}}}
	}
	o.Role, o.UpdatedRole = of(x.Before), of(x.After)
	return true
}

// rolesIn returns the roles in the paths of changes: /custom_roles/role_id=ID/…, and the
// default roles, which are recognised by the ends of their members' names.
func rolesIn(raw json.RawMessage) []string {
	var changes []struct {
		Path string `json:"path"`
	}
	_ = json.Unmarshal(raw, &changes)
	var names []string
	for _, c := range changes {
		if name := roleOf(c.Path); name != "" && !slices.Contains(names, name) && len(names) < maxListed {
			names = append(names, name)
		}
	}
	return names
}

func roleOf(path string) string {
	member, rest, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	if member == "custom_roles" {
		id, _, _ := strings.Cut(rest, "/")
		id, _ = strings.CutPrefix(id, "role_id=")
		return strings.NewReplacer("~1", "/", "~0", "~").Replace(id)
	}
	for _, name := range []string{"member", "admin", "user"} {
		if strings.HasSuffix(member, "_"+name) {
			return name
		}
	}
	return ""
}
