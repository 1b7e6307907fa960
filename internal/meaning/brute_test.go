package meaning

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
)

// pairs is how many random pairs of states the tests of this file hold against an
// evaluation by enumeration. A million of them:
//
//	AUDITRELAY_PAIRS=1000000 go test ./internal/meaning -run Brute
func pairs(t *testing.T, share int) int {
	t.Helper()
	n := 10_000
	if text := os.Getenv("AUDITRELAY_PAIRS"); text != "" {
		var err error
		n, err = strconv.Atoi(text)
		require.NoError(t, err)
	}
	return n * share / 100
}

// verdict is the direction by sets: something gained, something lost, or something
// unknown.
func verdict(gained, lost, unknown bool) Direction {
	switch {
	case gained && lost:
		return Mixed
	case gained:
		return Weaker
	case unknown:
		return Unknown
	case lost:
		return Stronger
	}
	return Neutral
}

// readPair reads two states, with what holds for every reading.
func readPair(t *testing.T, subject string, before, after any) Reading {
	t.Helper()
	a, err := json.Marshal(before)
	require.NoError(t, err)
	b, err := json.Marshal(after)
	require.NoError(t, err)
	r, err := Read(subject, a, b)
	require.NoError(t, err)
	for _, s := range r.Statements {
		proven := s.Direction == Weaker || s.Direction == Stronger || s.Direction == Mixed
		if proven != (s.Witness != "") {
			t.Fatalf("%s to %s: %s statement with the witness %q: %s", a, b, s.Direction, s.Witness, s.Sentence)
		}
	}
	return r
}

func some[T any](r *rand.Rand, from []T) []T {
	out := []T{}
	for _, x := range from {
		for r.IntN(3) == 0 { // at times twice
			out = append(out, x)
		}
	}
	r.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
	return out
}

// The random policies, as their JSON is.
type (
	brutePermission struct {
		Resource string   `json:"resource_id"`
		Actions  []string `json:"actions"`
	}
	bruteHolder struct {
		Role        string            `json:"role_id,omitempty"`
		Scope       string            `json:"scope,omitempty"`
		Permissions []brutePermission `json:"permissions"`
	}
	bruteResource struct {
		ID      string   `json:"resource_id"`
		Actions []string `json:"available_actions"`
	}
	brutePolicy struct {
		Own    []bruteResource `json:"brand_resources"`
		Custom []bruteResource `json:"custom_resources"`
		Member bruteHolder     `json:"brand_member"`
		Admin  bruteHolder     `json:"brand_admin"`
		Roles  []bruteHolder   `json:"custom_roles"`
		Scopes []bruteHolder   `json:"custom_scopes"`
	}
)

var (
	bruteResources = []string{"d", "e", "f", "*"}
	bruteActions   = []string{"r", "w", "*", "never"}
)

func randomPolicy(r *rand.Rand) brutePolicy {
	permissions := func() []brutePermission {
		out := []brutePermission{}
		for _, id := range some(r, bruteResources) {
			out = append(out, brutePermission{id, some(r, bruteActions)})
		}
		return out
	}
	resources := func() []bruteResource {
		out := []bruteResource{}
		for _, id := range some(r, bruteResources[:3]) {
			out = append(out, bruteResource{id, some(r, bruteActions[:3])})
		}
		return out
	}
	p := brutePolicy{Own: resources(), Custom: resources(), Roles: []bruteHolder{}, Scopes: []bruteHolder{}}
	p.Member.Permissions, p.Admin.Permissions = permissions(), permissions()
	for _, id := range some(r, []string{"a", "member"}) {
		p.Roles = append(p.Roles, bruteHolder{Role: id, Permissions: permissions()})
	}
	for _, id := range some(r, []string{"a", "s"}) {
		p.Scopes = append(p.Scopes, bruteHolder{Scope: id, Permissions: permissions()})
	}
	return p
}

// altered is p with one part from another policy, so that most of it stays.
func altered(r *rand.Rand, p brutePolicy) brutePolicy {
	q := randomPolicy(r)
	switch r.IntN(6) {
	case 0:
		p.Own = q.Own
	case 1:
		p.Custom = q.Custom
	case 2:
		p.Member = q.Member
	case 3:
		p.Roles = q.Roles
	case 4:
		p.Scopes = q.Scopes
	default:
		p.Custom = slices.Clone(p.Custom)
		r.Shuffle(len(p.Custom), func(i, j int) { p.Custom[i], p.Custom[j] = p.Custom[j], p.Custom[i] })
	}
	return p
}

// bruteHolders are all holders there can be, with what a witness calls them.
var bruteHolders = []struct {
	called  string
	entries func(p *brutePolicy) []bruteHolder
	role    string // or a scope; "" for all entries
}{
	{"`member`", func(p *brutePolicy) []bruteHolder { return []bruteHolder{p.Member} }, ""},
	{"`admin`", func(p *brutePolicy) []bruteHolder { return []bruteHolder{p.Admin} }, ""},
	{"`a`", func(p *brutePolicy) []bruteHolder { return p.Roles }, "a"},
	{"`member`", func(p *brutePolicy) []bruteHolder { return p.Roles }, "member"},
	{"scope `a`", func(p *brutePolicy) []bruteHolder { return p.Scopes }, "a"},
	{"scope `s`", func(p *brutePolicy) []bruteHolder { return p.Scopes }, "s"},
}

// names reports whether a permission of the holder names the action on the resource.
func (p *brutePolicy) names(holder int, resource, action string) bool {
	for _, h := range bruteHolders[holder].entries(p) {
		if id := bruteHolders[holder].role; id != "" && h.Role+h.Scope != id {
			continue
		}
		for _, permission := range h.Permissions {
			if permission.Resource == resource && slices.Contains(permission.Actions, action) {
				return true
			}
		}
	}
	return false
}

// lists reports whether a resource with an action is defined; the action "" is any.
func (p *brutePolicy) lists(resource, action string) bool {
	for _, list := range [][]bruteResource{p.Own, p.Custom} {
		for _, r := range list {
			if r.ID == resource && (action == "" || slices.Contains(r.Actions, action)) {
				return true
			}
		}
	}
	return false
}

// permits is the definition of a triple that is permitted.
func (p *brutePolicy) permits(holder int, resource, action string) bool {
	return p.lists(resource, action) && (p.names(holder, resource, action) || p.names(holder, resource, "*"))
}

// brute is what enumeration finds about two policies.
type brute struct {
	gained, lost, unknown bool
	pairs                 int             // of holder and resource, with a gain or a loss, each counted
	true                  map[string]bool // the witnesses that are true
}

func enumerate(a, b *brutePolicy) brute {
	x := brute{true: map[string]bool{}}
	for h, holder := range bruteHolders {
		for _, resource := range bruteResources {
			var gained, lost int
			for _, action := range bruteActions {
				was, is := a.permits(h, resource, action), b.permits(h, resource, action)
				if is && !was {
					gained = 1
					x.true[fmt.Sprintf("%s may now `%s` `%s`", holder.called, action, resource)] = true
				}
				if was && !is {
					lost = 1
					x.true[fmt.Sprintf("%s may no longer `%s` `%s`", holder.called, action, resource)] = true
				}
				named := a.names(h, resource, action) != b.names(h, resource, action)
				x.unknown = x.unknown || named && !a.lists(resource, "") && !b.lists(resource, "")
				// What the lists do not have, the service may grant all the same.
				newly := b.names(h, resource, action) && !a.names(h, resource, action)
				x.unknown = x.unknown || newly && !b.lists(resource, "") ||
					newly && action != "*" && !b.lists(resource, action) && !a.names(h, resource, "*")
			}
			x.gained, x.lost, x.pairs = x.gained || gained > 0, x.lost || lost > 0, x.pairs+gained+lost
		}
	}
	return x
}

func TestBruteRBAC(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	met := map[Direction]int{}
	for range pairs(t, 15) {
		a := randomPolicy(r)
		b := altered(r, a)
		if r.IntN(4) == 0 {
			b = altered(r, b)
		}
		found, got := enumerate(&a, &b), readPair(t, rbacPolicy, a, b)
		want := verdict(found.gained, found.lost, found.unknown)
		if got.Direction != want {
			t.Fatalf("%s, want %s: %+v\n%+v\n%+v", got.Direction, want, a, b, got)
		}
		met[want]++
		told := 0
		for _, s := range got.Statements {
			if s.Witness != "" {
				told++
				if !found.true[s.Witness] {
					t.Fatalf("not so: %s: %+v\n%+v", s.Witness, a, b)
				}
			}
		}
		require.Equal(t, found.pairs, told)
	}
	require.Len(t, met, 5, "the states show only %v", met)
}
