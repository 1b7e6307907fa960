package workspace

import (
	"fmt"
	"strings"
	"testing"
)

func BenchmarkChange(b *testing.B) {
	space := newWorkspace()
	w := newWatcher(b, space, &memoryTrail{})
	policy := func(n int) string {
		var roles []string
		for i := range 2000 {
			roles = append(roles, fmt.Sprintf(`{"role_id":"role-%d","description":"does things %d","permissions":[{"resource_id":"documents","actions":["read","write"]}]}`, i, i+n%2))
		}
		return `{"custom_roles":[` + strings.Join(roles, ",") + `],"custom_resources":[{"resource_id":"documents","available_actions":["read","write"]}],"custom_scopes":[]}`
	}
	states := []string{policy(0), policy(1)}
	space.set(at(RBACPolicy, "live"), states[0])
	_ = w.Snapshot(b.Context())
	b.ReportAllocs()
	for i := 1; b.Loop(); i++ {
		space.set(at(RBACPolicy, "live"), states[i%2])
		if err := w.Snapshot(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
}
