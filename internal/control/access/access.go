// Package access knows what the visitors of the console in the browser may do.
package access

import (
	"cmp"
	"fmt"
)

// Role is what a person may do. A higher role may do all that a lower one may.
type Role int

// Viewers see states and changes. Auditors also see what events say, and review entries. Operators
// also act on the relay and the workspace. The zero value may do nothing.
const (
	Viewer Role = iota + 1
	Auditor
	Operator
)

var roles = map[Role]string{Viewer: "viewer", Auditor: "auditor", Operator: "operator"}

func (r Role) String() string { return cmp.Or(roles[r], "nobody") }

// MarshalText gives the role's name.
func (r Role) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// UnmarshalText reads a role's name.
func (r *Role) UnmarshalText(name []byte) error {
	if *r = granted(string(name)); *r == 0 {
		return fmt.Errorf("%q is no role: viewer, auditor and operator are", name)
	}
	return nil
}

// granted is the role that a rule of the configuration gives; what validation would refuse gives none.
func granted(name string) Role {
	for role, its := range roles {
		if its == name {
			return role
		}
	}
	return 0
}
