package meaning

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/auditrelay/auditrelay/internal/json/jsondiff"
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
// trail, by the same model as [Read]. An action of "*" asks for the wildcard itself. A state other than a policy lets nobody do anything.
func WhoCan(state json.RawMessage, action, id string) (Answer, error) {
	a := Answer{Who: []Permit{}}
	s, err := jsondiff.Read(state)
	if err != nil {
		return a, fmt.Errorf("read the policy: %w", err)
	}
	p := readPolicy(s.Value)
	for h, g := range p.holders {
		x := side{g.permissions[id], g.permissions[wildcard], p.resources[id]}
		permit := Permit{Holder: h.String(), Kind: h.kind, Name: h.name, Path: h.path, By: x.by(action, id)}
		switch v := x.may(action); {
		case v == certain, action == wildcard && x.resource != nil && x.grant.wild():
			a.Who = append(a.Who, permit)
		case v == perhaps:
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
