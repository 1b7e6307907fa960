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

	"github.com/auditrelay/auditrelay/internal/workspace/kinds"
)

// pairs is how many random pairs of states the tests of this file hold against an
// evaluation by enumeration. A million of them:
//
//	AUDITRELAY_PAIRS=1000000 go test ./internal/workspace/meaning -run Brute
func pairs(t *testing.T, share int, short bool) int {
	t.Helper()
	n := 10_000
	if short {
		n = 2_000
	}
	if text := os.Getenv("AUDITRELAY_PAIRS"); text != "" {
		var err error
		n, err = strconv.Atoi(text)
		require.NoError(t, err)
	}
	return n * share / 100
}

// bySets is the direction by sets: something gained, something lost, or something
// unknown.
func bySets(gained, lost, unknown bool) Direction {
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
		for _, id := range some(r, bruteResources) {
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

// bruteVerdict is whether a triple is permitted, by the words of deploy/severity.md: "no",
// "perhaps" or "certain".
func (p *brutePolicy) bruteVerdict(holder int, resource, action string) string {
	granted := p.names(holder, resource, action) || p.names(holder, resource, "*")
	switch {
	case granted && p.lists(resource, action):
		return "certain"
	case granted, p.names(holder, "*", action), p.names(holder, "*", "*"):
		return "perhaps"
	}
	return "no"
}

// The universe has one resource and one action that no policy names, for all of their kind.
var (
	everyResource = append(slices.Clone(bruteResources), "elsewhere")
	everyAction   = append(slices.Clone(bruteActions), "unheard-of")
)

// brute is what enumeration finds about two policies.
type brute struct {
	gained, lost, unknown bool
	pairs                 int             // of holder and resource, with a gain or a loss, each counted
	true                  map[string]bool // the witnesses that are true
}

// enumerate judges each triple by itself. A wildcard that goes takes unlisted actions with
// it; where it takes listed ones too, that makes no doubt.
func enumerate(a, b *brutePolicy) brute {
	x := brute{true: map[string]bool{}}
	for h, holder := range bruteHolders {
		for _, resource := range everyResource {
			var gained, lost int
			var doubts, went bool
			for _, action := range everyAction {
				was, is := a.bruteVerdict(h, resource, action), b.bruteVerdict(h, resource, action)
				switch {
				case action == "*" && !a.lists(resource, "*") && !b.lists(resource, "*"): // no action, but all of them
				case is == was:
				case is == "certain":
					gained = 1
					x.true[fmt.Sprintf("%s may now `%s` `%s`", holder.called, action, resource)] = true
				case was == "certain" && is == "no":
					lost = 1
					x.true[fmt.Sprintf("%s may no longer `%s` `%s`", holder.called, action, resource)] = true
				case was == "perhaps" && is == "no" && !a.names(h, resource, action) && resource != "elsewhere":
					went = true
				default:
					doubts = true
				}
			}
			x.gained, x.lost, x.pairs = x.gained || gained > 0, x.lost || lost > 0, x.pairs+gained+lost
			x.unknown = x.unknown || doubts || went && lost == 0
		}
	}
	return x
}

func TestBruteRBAC(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	met := map[Direction]int{}
	for range pairs(t, 15, testing.Short()) {
		a := randomPolicy(r)
		b := altered(r, a)
		if r.IntN(4) == 0 {
			b = altered(r, b)
		}
		found, got := enumerate(&a, &b), readPair(t, kinds.RBACPolicy.Name, a, b)
		want := bySets(found.gained, found.lost, found.unknown)
		if got.Direction != want {
			t.Fatalf("%s, want %s: %+v\n%+v\n%+v", got.Direction, want, a, b, got)
		}
		met[want]++
		told := 0
		for _, s := range got.Statements {
			if s.Witness != "" && s.Rule != "rbac.lockout" {
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

// TestBruteRBACWhoCan holds who-can, and each statement's direction, against the same
// enumeration: there is one model of what a policy permits.
func TestBruteRBACWhoCan(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(11, 12))
	for range pairs(t, 3, testing.Short()) {
		p := randomPolicy(r)
		state := mustJSON(t, p)
		for _, resource := range everyResource {
			for _, action := range everyAction {
				if action == "*" {
					continue // it asks for the wildcard
				}
				answer, err := WhoCan(state, action, resource)
				require.NoError(t, err)
				want, got := map[string]int{}, map[string]int{}
				for h, holder := range bruteHolders {
					if v := p.bruteVerdict(h, resource, action); v != "no" {
						want[v+" "+holder.called]++
					}
				}
				count := func(v string, list []Permit) {
					for _, permit := range list {
						name := quote(permit.Name)
						if permit.Kind == customScope {
							name = "scope " + name
						}
						got[v+" "+name]++
					}
				}
				count("certain", answer.Who)
				count("perhaps", answer.Perhaps)
				require.Equal(t, want, got, "%s %s: %s", action, resource, state)
			}
		}
	}
}
