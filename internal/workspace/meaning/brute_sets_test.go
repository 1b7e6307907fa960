package meaning

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/internal/jsontext"
	"github.com/auditrelay/auditrelay/internal/workspace/kinds"
)

type bruteConfig struct {
	Policy     string `json:"validation_policy"`
	Length     any    `json:"luds_min_password_length"`
	Complexity any    `json:"luds_min_password_complexity"`
	Creation   bool   `json:"check_breach_on_creation"`
	Login      bool   `json:"check_breach_on_authentication"`
	Validate   bool   `json:"validate_on_authentication"`
}

// brutePassword is one password of a small universe.
type brutePassword struct {
	length, classes  int
	random, breached bool
}

func (c bruteConfig) strong(p brutePassword) bool {
	if c.Policy == "ZXCVBN" {
		return p.random && p.length >= 9
	}
	return p.length >= c.Length.(int) && p.classes >= c.Complexity.(int)
}

func (c bruteConfig) acceptsNew(p brutePassword) bool {
	return c.strong(p) && (!c.Creation || !p.breached)
}

func (c bruteConfig) acceptsLogin(p brutePassword) bool {
	return (!c.Validate || c.strong(p)) && (!c.Login || !p.breached)
}

func brutePasswords() (all []brutePassword) {
	for length := 1; length <= 16; length++ {
		for classes := 1; classes <= min(4, length); classes++ {
			for _, random := range []bool{false, true} {
				all = append(all, brutePassword{length, classes, random, false}, brutePassword{length, classes, random, true})
			}
		}
	}
	return all
}

func randomConfig(r *rand.Rand) bruteConfig {
	coin := func() bool { return r.IntN(2) == 0 }
	c := bruteConfig{"LUDS", r.IntN(16), r.IntN(6), coin(), coin(), coin()}
	if r.IntN(4) == 0 {
		c = bruteConfig{"ZXCVBN", nil, nil, coin(), coin(), coin()}
	}
	return c
}

func TestBrutePasswords(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(3, 4))
	universe := brutePasswords()
	met := map[Direction]int{}
	for range pairs(t, 60, testing.Short()) {
		a, b := randomConfig(r), randomConfig(r)
		if r.IntN(2) == 0 {
			b.Creation, b.Login, b.Validate = a.Creation, a.Login, a.Validate
		}
		if r.IntN(3) == 0 {
			b.Policy, b.Length, b.Complexity = a.Policy, a.Length, a.Complexity
		}
		var gained, lost bool
		for _, p := range universe {
			newA, newB, loginA, loginB := a.acceptsNew(p), b.acceptsNew(p), a.acceptsLogin(p), b.acceptsLogin(p)
			gained = gained || newB && !newA || loginB && !loginA
			lost = lost || newA && !newB || loginA && !loginB
		}
		got := readPair(t, kinds.PasswordStrength.Name, a, b)
		want := bySets(gained, lost, false)
		require.Equal(t, want, got.Direction, "%+v\n%+v\n%+v", a, b, got)
		met[want]++
		newLock, loginLock := a.locks(universe, bruteConfig.acceptsNew), a.locks(universe, bruteConfig.acceptsLogin)
		locked := b.locks(universe, bruteConfig.acceptsNew) && !newLock || b.locks(universe, bruteConfig.acceptsLogin) && !loginLock
		require.Equal(t, locked, slices.ContainsFunc(got.Statements, func(s Statement) bool { return s.Rule == "password.lockout" && s.Severity == High }), "%+v\n%+v\n%+v", a, b, got)
		if !a.equal(b) {
			requireExample(t, a, b)
		}
	}
	require.Len(t, met, 4, "the states show only %v", met)
}

// locks reports whether no password at all is accepted.
func (c bruteConfig) locks(universe []brutePassword, accepts func(bruteConfig, brutePassword) bool) bool {
	return !slices.ContainsFunc(universe, func(p brutePassword) bool { return accepts(c, p) })
}

func (c bruteConfig) equal(d bruteConfig) bool {
	return c.Policy == d.Policy && c.Length == d.Length && c.Complexity == d.Complexity
}

// requireExample checks the example that stands in a witness: b accepts it and a does not.
func requireExample(t *testing.T, a, b bruteConfig) {
	t.Helper()
	read := func(c bruteConfig) strength {
		v, err := jsontext.Read(mustJSON(t, c))
		require.NoError(t, err)
		return readPassword(v.Value).strength
	}
	e, found := read(b).beyond(read(a))
	if found {
		p := brutePassword{e.length, e.classes, e.random, false}
		require.True(t, b.strong(p) && !a.strong(p), "%+v %+v: %s", a, b, e)
	}
}

func TestBruteCountries(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(5, 6))
	universe := []string{"CA", "DE", "KP", "US"}
	met := map[Direction]int{}
	for range pairs(t, 25, testing.Short()) {
		a, b := some(r, universe), some(r, universe)
		var gained, lost int
		for _, code := range universe {
			was, is := slices.Contains(a, code), slices.Contains(b, code)
			if is && !was {
				gained++
			}
			if was && !is {
				lost++
			}
		}
		got := readPair(t, kinds.SMSCountryCodes.Name, a, b)
		want := bySets(gained > 0, lost > 0, false)
		require.Equal(t, want, got.Direction, "%v %v", a, b)
		if want != Neutral {
			told := slices.DeleteFunc(got.Statements, func(s Statement) bool { return s.Rule == "sms.lockout" })
			require.Len(t, told, gained+lost)
			locked := len(a) > 0 && !slices.ContainsFunc(a, func(code string) bool { return slices.Contains(b, code) })
			require.Equal(t, locked, len(told) < len(got.Statements), "%v %v", a, b)
		}
		met[want]++
	}
	require.Len(t, met, 4, "the states show only %v", met)
}
