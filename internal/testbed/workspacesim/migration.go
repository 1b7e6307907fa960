package workspacesim

import (
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/auditrelay/auditrelay/config/secret"
)

// The demo's project key, for the second API: the one that migrations use. A management key is
// refused there.
const (
	DemoProjectID     = "project-live-demo-5e21"
	DemoProjectSecret = "project-secret-demo-Zt4mW8yQ1c"
)

// The limits of the second API: the most requests in any second.
const (
	consumerLimit = 65
	b2bLimit      = 100
)

// Migrated is what the second API has seen.
type Migrated struct {
	// Rows are those that are there: "organization SLUG", "member SLUG EMAIL", "password SLUG EMAIL"
	// and "session TOKEN", in the order of their arrival.
	Rows []string `json:"rows"`
	// IDs are those of the organizations, by slug.
	IDs map[string]string `json:"organization_ids"`
	// Duplicates counts the calls for a row that was there.
	Duplicates int `json:"duplicates"`
	// Requests is how many came, and Most how many of them in any second. TooMany were refused for
	// that reason.
	Requests int `json:"requests"`
	Most     int `json:"most_in_a_second"`
	TooMany  int `json:"too_many"`
}

// migrated is the state of the second API. [Simulator.mu] guards it.
type migrated struct {
	told     Migrated
	there    map[string]bool
	slugs    map[string]string // of organizations, by id
	shared   bool              // passwords are shared by the organizations of an email address
	arrivals []time.Time       // of the last second
}

// Migrated returns what the second API has seen.
func (s *Simulator) Migrated() Migrated {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := s.migrated.told
	m.Rows = append([]string{}, m.Rows...)
	m.IDs = map[string]string{}
	for id, slug := range s.migrated.slugs {
		m.IDs[slug] = id
	}
	return m
}

// SharePasswords says whether passwords are shared by the organizations of an email address, or
// scoped to each member. It cannot be changed once there are active passwords.
func (s *Simulator) SharePasswords(shared bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for row := range s.migrated.there {
		if strings.HasPrefix(row, "password ") && shared != s.migrated.shared {
			return errors.New("the project has active passwords: whether they are shared cannot be changed")
		}
	}
	s.migrated.shared = shared
	return nil
}

// isSecondAPI reports whether a path is of the second API, which has a key of its own.
func isSecondAPI(path string) bool {
	return strings.HasPrefix(path, "/v1/b2b/") || path == "/v1/sessions/migrate"
}

// tooMany counts an arrival at the second API, and reports whether it is one too many of the last
// second. A refused request counts as well.
func (s *Simulator) tooMany(path string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	m, now := &s.migrated, time.Now()
	for len(m.arrivals) > 0 && now.Sub(m.arrivals[0]) >= time.Second {
		m.arrivals = m.arrivals[1:]
	}
	m.arrivals = append(m.arrivals, now)
	m.told.Requests++
	m.told.Most = max(m.told.Most, len(m.arrivals))
	limit := b2bLimit
	if path == "/v1/sessions/migrate" {
		limit = consumerLimit
	}
	if len(m.arrivals) <= limit {
		return false
	}
	m.told.TooMany++
	return true
}

// isProjectKey compares a request's credentials with the project's.
func isProjectKey(r *http.Request) bool {
	id, password, _ := r.BasicAuth()
	okID, okSecret := secret.New(DemoProjectID).Equal(id), secret.New(DemoProjectSecret).Equal(password)
	return okID && okSecret
}

// take keeps a row, or refuses it as a duplicate. The refusal repeats what was sent, as some
// services do.
func (s *Simulator) take(row, kind, echo string) *apiError {
	m := &s.migrated
	if m.there[row] {
		m.told.Duplicates++
		return badRequestOf("duplicate_"+kind, "There is such a "+kind+" already: "+echo+".")
	}
	m.there[row] = true
	m.told.Rows = append(m.told.Rows, row)
	return nil
}

func badRequestOf(kind, message string) *apiError {
	return &apiError{status: http.StatusBadRequest, kind: kind, message: message}
}

// migrateOrganization is POST /v1/b2b/organizations.
func (s *Simulator) migrateOrganization(c *call) (map[string]any, *apiError) {
	name, slug := c.body.text("organization_name"), c.body.text("organization_slug")
	for _, field := range []string{"mfa_policy", "email_allowed_domains", "email_invites", "email_jit_provisioning"} {
		c.body.take(field)
	}
	c.body.done()
	if err := c.body.err(); err != nil {
		return nil, badRequest("%s.", err)
	}
	if fail := s.take("organization "+slug, "organization_slug", slug); fail != nil {
		return nil, fail
	}
	id := "organization-live-" + uuid(mix(uint64(len(s.migrated.slugs))^s.opts.Seed), mix(uint64(len(slug))))
	s.migrated.slugs[id] = slug
	return map[string]any{"organization": map[string]any{"organization_id": id, "organization_name": name, "organization_slug": slug}}, nil
}

// migrateMember is POST /v1/b2b/organizations/:organization_id/members.
func (s *Simulator) migrateMember(c *call) (map[string]any, *apiError) {
	email := c.body.text("email_address")
	for _, field := range []string{"name", "mfa_phone_number", "trusted_metadata"} {
		c.body.take(field)
	}
	c.body.boolean("mfa_enrolled")
	c.body.done()
	slug, fail := s.organizationOf(c, c.params["organization_id"])
	if fail == nil {
		fail = s.take("member "+slug+" "+strings.ToLower(email), "member_email", email)
	}
	return map[string]any{"member": map[string]any{"email_address": email}}, fail
}

// organizationOf checks the body, and finds an organization's slug.
func (s *Simulator) organizationOf(c *call, id string) (string, *apiError) {
	if err := c.body.err(); err != nil {
		return "", badRequest("%s.", err)
	}
	slug, ok := s.migrated.slugs[id]
	if !ok {
		return "", notFound("organization_not_found", "There is no organization %q.", id)
	}
	return slug, nil
}

// migratePassword is POST /v1/b2b/passwords/migrate. A password needs its member.
func (s *Simulator) migratePassword(c *call) (map[string]any, *apiError) {
	email, hash, kind := c.body.text("email_address"), c.body.text("hash"), c.body.text("hash_type")
	id := c.body.text("organization_id")
	c.body.done()
	slug, fail := s.organizationOf(c, id)
	of := slug + " " + strings.ToLower(email)
	switch {
	case fail != nil:
		return nil, fail
	case !s.migrated.there["member "+of]:
		return nil, notFound("member_not_found", "There is no member %q.", email)
	case kind == "bcrypt" && (!strings.HasPrefix(hash, "$2") || strings.HasSuffix(hash, "BAD")):
		return nil, badRequestOf("invalid_password_hash", "The hash "+hash+" is not bcrypt.")
	case s.migrated.shared:
		of = "* " + strings.ToLower(email)
	}
	return map[string]any{}, s.take("password "+of, "password", hash)
}

// migrateSession is POST /v1/sessions/migrate, and for B2B POST /v1/b2b/sessions/migrate.
func (s *Simulator) migrateSession(c *call) (map[string]any, *apiError) {
	token := c.body.text("session_token")
	c.body.done()
	if err := c.body.err(); err != nil {
		return nil, badRequest("%s.", err)
	}
	return sessionOf("user_id"), s.take("session "+token, "session", token)
}

func (s *Simulator) migrateMemberSession(c *call) (map[string]any, *apiError) {
	token, id := c.body.text("session_token"), c.body.text("organization_id")
	c.body.done()
	_, fail := s.organizationOf(c, id)
	if fail == nil {
		fail = s.take("session "+token, "session", token)
	}
	return sessionOf("member_id"), fail
}

// sessionOf is an answer with secrets of its own.
func sessionOf(who string) map[string]any {
	return map[string]any{who: who + "-live-1", "session_token": "new-session-token-Hq7", "session_jwt": "eyJhbGciOiJSUzI1NiJ9.new-jwt-Hq7"}
}
