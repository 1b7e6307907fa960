package workspacesim

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// seededProjects are a workspace's first projects. Their slugs are independent of the
// seed, for use in configurations.
var seededProjects = []struct{ slug, name, vertical string }{
	{"acme-portal", "Acme Customer Portal", "B2B"},
	{"northwind-shop", "Northwind Shop", "CONSUMER"},
	{"lumen-health", "Lumen Health", "ALL"},
	{"contoso-bank", "Contoso Bank", "B2B"},
	{"fabrikam-field", "Fabrikam Field Service", "B2B"},
	{"tailspin-toys", "Tailspin Toys", "CONSUMER"},
}

// seed makes a workspace's first projects.
func (s *Simulator) seed() {
	created := time.Date(2024, 2, 12, 9, 30, 0, 0, time.UTC)
	for i := range s.opts.Projects {
		p := seededProjects[i%len(seededProjects)]
		if i >= len(seededProjects) {
			p.slug = fmt.Sprintf("%s-%d", p.slug, i/len(seededProjects)+1)
		}
		created = created.Add(time.Duration(mix(s.opts.Seed+uint64(i))%2000+1) * time.Hour)
		s.addProject(p.slug, p.name, p.vertical, created.Format(time.RFC3339))
	}
}

// addProject makes a project with two environments. The caller holds s.mu, or
// is [New].
func (s *Simulator) addProject(slug, name, vertical, created string) *projectState {
	m := &maker{rng: rand.New(rand.NewPCG(s.opts.Seed, uint64(len(s.projects))+100))}
	p := &projectState{
		project:  project{Slug: slug, Name: name, Vertical: vertical, CreatedAt: created},
		defaults: map[string]string{},
	}
	m.addTemplates(p)
	for i, environmentSlug := range []string{"production", "test"} {
		e := m.environment(slug, environmentSlug, s.opts.RBACPrefix, i == 1)
		e.stream = s.newStream(e)
		p.environments = append(p.environments, e)
		if s.running != nil {
			e.stream.run(s.running, &s.streams)
		}
	}
	if s.opts.StrictSettings {
		p.makeStrict()
	}
	s.projects = append(s.projects, p)
	return p
}

// freeSlug makes an unused slug of name.
func (s *Simulator) freeSlug(name string) string {
	slug := strings.Trim(strings.Map(func(r rune) rune {
		switch {
		case 'a' <= r && r <= 'z', '0' <= r && r <= '9':
			return r
		case 'A' <= r && r <= 'Z':
			return r + 'a' - 'A'
		}
		return '-'
	}, name), "-")
	if slug == "" {
		slug = "project"
	}
	taken := func(slug string) bool {
		return slices.ContainsFunc(s.projects, func(p *projectState) bool { return p.Slug == slug })
	}
	free := slug
	for i := 2; taken(free); i++ {
		free = fmt.Sprintf("%s-%d", slug, i)
	}
	return free
}

// maker makes realistic data, all of it from rng.
type maker struct{ rng *rand.Rand }

func (m *maker) id(kind string) string {
	return kind + "-" + uuid(m.rng.Uint64(), m.rng.Uint64())
}

func (m *maker) chance(percent int) bool { return m.rng.IntN(100) < percent }

func pick[T any](m *maker, from []T) T { return from[m.rng.IntN(len(from))] }

func (m *maker) environment(projectSlug, slug, rbacPrefix string, test bool) *environment {
	kind := "live"
	if test {
		kind = "test"
	}
	e := &environment{project: projectSlug, slug: slug}
	e.redirects = m.redirects(projectSlug, test)
	e.policy = m.policy(rbacPrefix)
	e.profiles = []trustedTokenProfile{m.jwkProfile(projectSlug), m.pemProfile(projectSlug)}
	e.password = passwordStrength{
		CheckBreachOnCreation: true, CheckBreachOnAuthentication: !test, ValidateOnAuthentication: m.chance(50),
		ValidationPolicy: "ZXCVBN", LUDSMinPasswordLength: 8, LUDSMinPasswordComplexity: 3,
	}
	if m.chance(40) {
		e.password.ValidationPolicy, e.password.LUDSMinPasswordLength = "LUDS", 10+m.rng.IntN(4)
	}
	e.countryCodes = m.countries()
	for range 2 + m.rng.IntN(2) {
		e.secrets = append(e.secrets, m.id("secret-"+kind))
		e.publicTokens = append(e.publicTokens, m.id("public-token-"+kind))
	}
	return e
}

func (m *maker) redirects(projectSlug string, test bool) []redirectURL {
	base := "https://app." + projectSlug + ".example"
	if test {
		base = "http://localhost:3000"
	}
	return []redirectURL{
		{URL: base + "/authenticate", ValidTypes: []validType{{true, "LOGIN"}, {true, "SIGNUP"}, {true, "INVITE"}}},
		{URL: base + "/reset", ValidTypes: []validType{{true, "RESET_PASSWORD"}}},
		{URL: base + "/v2/authenticate", ValidTypes: []validType{{false, "LOGIN"}, {false, "SIGNUP"}}},
	}
}

// allowedCountries are the candidates for SMS country code allowlists.
var allowedCountries = strings.Fields("AT AU BE BR CA CH CZ DE DK ES FI FR GB IE IN IT JP KR MX NL NO NZ PL PT SE SG US ZA")

func (m *maker) countries() []string {
	codes := []string{}
	for _, code := range allowedCountries {
		if code == "US" || code == "CA" || m.chance(25) {
			codes = append(codes, code)
		}
	}
	return codes
}
