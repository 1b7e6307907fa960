package meaning

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
)

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
// trail. It resolves as [Read] does. A state other than a policy lets nobody do anything.
func WhoCan(state json.RawMessage, action, id string) (Answer, error) {
	a := Answer{Who: []Permit{}}
	s, err := decode(state)
	if err != nil {
		return a, fmt.Errorf("read the policy: %w", err)
	}
	p := readPolicy(s.value)
	for h, g := range p.holders {
		x, every := side{g.permissions[id], p.resources[id]}, side{grant: g.permissions[wildcard]}
		permit := Permit{Holder: h.String(), Kind: h.kind, Name: h.name, Path: h.path}
		switch {
		case x.permits(action), action == wildcard && x.defined() && x.all():
			permit.By = x.by(action, id)
			a.Who = append(a.Who, permit)
		case x.grants(action):
			permit.By = x.by(action, id) + ", which no list has"
			a.Perhaps = append(a.Perhaps, permit)
		case every.grants(action):
			permit.By = every.by(action, wildcard) + ", if the service takes that for every resource"
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

// grants reports whether a permission names the action or the wildcard, listed or not.
func (s side) grants(action string) bool { return s.all() || s.named()[action] }

// by names the permission for an action.
func (s side) by(action, id string) string {
	if s.named()[action] && action != wildcard {
		return "permission for " + quote(action) + " on " + quote(id)
	}
	return "wildcard `*` on " + quote(id)
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
