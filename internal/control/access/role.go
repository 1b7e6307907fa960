package access

import "fmt"

// ParseRole reads a role's name.
func ParseRole(name string) (Role, error) {
	for _, r := range []Role{Viewer, Auditor, Operator} {
		if r.String() == name {
			return r, nil
		}
	}
	return 0, fmt.Errorf("%q is no role: viewer, auditor and operator are", name)
}

// MarshalText gives the role's name.
func (r Role) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// UnmarshalText reads a role's name.
func (r *Role) UnmarshalText(name []byte) (err error) {
	*r, err = ParseRole(string(name))
	return err
}

// granted is the role that a rule of the configuration gives; what validation would refuse gives none.
func granted(name string) Role {
	r, _ := ParseRole(name)
	return r
}
