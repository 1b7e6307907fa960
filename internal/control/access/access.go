// Package access knows what the visitors of the console in the browser may do.
package access

// Role is what a person may do. A higher role may do all that a lower one may.
type Role int

// Viewers see states and changes. Auditors also see what events say, and review entries. Operators
// also act on the relay and the workspace. The zero value may do nothing.
const (
	Viewer Role = iota + 1
	Auditor
	Operator
)

func (r Role) String() string {
	switch r {
	case Viewer:
		return "viewer"
	case Auditor:
		return "auditor"
	case Operator:
		return "operator"
	}
	return "nobody"
}
