package migration

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"unique"

	"github.com/auditrelay/auditrelay/config/secret"
	"github.com/auditrelay/auditrelay/internal/store/durable"
)

// The types of rows.
const (
	TypeOrganization = "organization"
	TypeMember       = "member"
	TypePassword     = "password"
	TypeSession      = "session"
)

// Types are in the order in which rows are sent.
var Types = []string{TypeOrganization, TypeMember, TypePassword, TypeSession}

// Row is one line of a file: an organization, a member, the hash of a password, or a session.
// Its fields are those of the API. A member, a password or a session names its organization by
// organization_slug, which is that of an organization's row, or by organization_id.
//
// An organization's row with an organization_id is not sent: it only says which id the slug has.
type Row struct {
	Type             string `json:"type"`
	OrganizationID   string `json:"organization_id,omitempty"`
	OrganizationSlug string `json:"organization_slug,omitempty"`

	OrganizationName     string   `json:"organization_name,omitempty"`
	MFAPolicy            string   `json:"mfa_policy,omitempty"`
	EmailAllowedDomains  []string `json:"email_allowed_domains,omitempty"`
	EmailInvites         string   `json:"email_invites,omitempty"`
	EmailJITProvisioning string   `json:"email_jit_provisioning,omitempty"`

	EmailAddress    string                     `json:"email_address,omitempty"`
	Name            string                     `json:"name,omitempty"`
	MFAPhoneNumber  string                     `json:"mfa_phone_number,omitempty"`
	MFAEnrolled     *bool                      `json:"mfa_enrolled,omitempty"`
	TrustedMetadata map[string]json.RawMessage `json:"trusted_metadata,omitempty"`

	HashType     string      `json:"hash_type,omitempty"`
	Hash         secret.Text `json:"hash,omitzero"`
	SessionToken secret.Text `json:"session_token,omitzero"`

	line int
	sum  name // of its text
}

// name is a hash.
type name [16]byte

func nameOf(parts ...string) name {
	sum := sha256.Sum256([]byte(strings.Join(parts, "\x00")))
	return name(sum[:16])
}

// fields are those of each type, apart from the ones that name the organization.
var fields = map[string]struct{ needed, further []string }{
	TypeOrganization: {[]string{"organization_name", "organization_slug"}, []string{"mfa_policy", "email_allowed_domains", "email_invites", "email_jit_provisioning"}},
	TypeMember:       {[]string{"email_address"}, []string{"name", "mfa_phone_number", "mfa_enrolled", "trusted_metadata"}},
	TypePassword:     {[]string{"email_address", "hash", "hash_type"}, nil},
	TypeSession:      {[]string{"session_token"}, nil},
}

// readRow reads a line. Its error shows no value of the row, except for names.
func readRow(line int, text []byte) (*Row, error) {
	r := &Row{line: line, sum: nameOf(string(text))}
	if err := json.Unmarshal(text, r); err != nil {
		return nil, fmt.Errorf("it is not a row: %w", err)
	}
	known, ok := fields[r.Type]
	if !ok {
		return nil, fmt.Errorf(`"type" must be one of %s`, strings.Join(Types, ", "))
	}
	var given map[string]json.RawMessage
	_ = json.Unmarshal(text, &given) // it is an object
	names := slices.Concat(known.needed, known.further, []string{"organization_id", "organization_slug", "type"})
	for _, name := range slices.Sorted(maps.Keys(given)) {
		if !slices.Contains(names, name) {
			return nil, fmt.Errorf("a row of the type %s has no field %.60q; it may have %s", r.Type, name, strings.Join(names, ", "))
		}
	}
	for _, name := range known.needed {
		if v := string(given[name]); v == "" || v == "null" || v == `""` {
			return nil, fmt.Errorf("a row of the type %s needs %s", r.Type, name)
		}
	}
	return r, r.check()
}

var (
	// bcryptForm is version, cost, 22 characters of salt and 31 of hash.
	bcryptForm = regexp.MustCompile(`^\$2[abxy]?\$(0[4-9]|[12][0-9]|3[01])\$[./A-Za-z0-9]{53}$`)
	// emailForm is loose, as the API judges an address.
	emailForm = regexp.MustCompile(`^[^@\s]+@[^@\s]+$`)
	// idForm is one segment of a path.
	idForm = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$`)
)

func (r *Row) check() error {
	switch {
	case r.EmailAddress != "" && !emailForm.MatchString(r.EmailAddress):
		return errors.New("email_address is not one")
	case strings.EqualFold(r.HashType, "bcrypt") && !bcryptForm.MatchString(r.Hash.Reveal()):
		return errors.New("the hash does not look like bcrypt, which is $2b$12$ and 53 characters")
	case r.OrganizationID != "" && !idForm.MatchString(r.OrganizationID):
		return errors.New("organization_id is not one")
	case r.Type != TypeOrganization && r.OrganizationID != "" && r.OrganizationSlug != "":
		return errors.New("it names its organization twice: give organization_slug or organization_id")
	case (r.Type == TypeMember || r.Type == TypePassword) && !r.ofOrganization():
		return fmt.Errorf("a row of the type %s needs organization_slug or organization_id", r.Type)
	}
	return nil
}

func (r *Row) ofOrganization() bool { return r.OrganizationID != "" || r.OrganizationSlug != "" }

// isSent reports whether there is a call for the row.
func (r *Row) isSent() bool { return r.Type != TypeOrganization || r.OrganizationID == "" }

// request is the call of a row, given the id of its organization.
func (r *Row) request(organization string) (path string, body []byte) {
	// The fields hide those of Row with the same names.
	v := struct {
		Row
		Type             string `json:"type,omitempty"`
		OrganizationID   string `json:"organization_id,omitempty"`
		OrganizationSlug string `json:"organization_slug,omitempty"`
		Hash             string `json:"hash,omitempty"`
		SessionToken     string `json:"session_token,omitempty"`
	}{Row: *r, OrganizationID: organization, Hash: r.Hash.Reveal(), SessionToken: r.SessionToken.Reveal()}
	switch {
	case r.Type == TypeOrganization:
		path, v.OrganizationSlug = "/v1/b2b/organizations", r.OrganizationSlug
	case r.Type == TypeMember:
		path, v.OrganizationID = "/v1/b2b/organizations/"+organization+"/members", ""
	case r.Type == TypePassword:
		path = "/v1/b2b/passwords/migrate"
	case organization != "":
		path = "/v1/b2b/sessions/migrate"
	default:
		path = "/v1/sessions/migrate"
	}
	body, _ = json.Marshal(v) // it came from JSON
	return path, body
}

// Flavour is the kind of a project's users.
type Flavour struct {
	Name string `json:"name"`
	// Limit is the most requests in a second.
	Limit int `json:"requests_per_second"`
	// Users is how many users one export and import may have; above it, dual-write plus backfill
	// is the way.
	Users int `json:"most_users"`
}

// The flavours.
var (
	Consumer = Flavour{"consumer", 65, 1_000_000}
	B2B      = Flavour{"B2B", 100, 500_000}
)

// Shared and Scoped say for what a password counts: in all organizations of its email address, so
// that it is sent once, or for one member. Once a project has active passwords, the choice cannot
// be changed.
const (
	Shared = "shared"
	Scoped = "scoped"
)

// Plan is what a file would do.
type Plan struct {
	Flavour   Flavour `json:"flavour"`
	Passwords string  `json:"passwords,omitempty"` // Shared or Scoped
	// Rows are those of the file, by type, and Calls the requests that are left to do for them.
	Rows  map[string]int `json:"rows"`
	Calls map[string]int `json:"calls"`
	Total int            `json:"calls_in_all"`
	// Seconds is how long the calls take at least.
	Seconds float64 `json:"seconds"`
}

// File is a checked file of rows, with what is known of them.
type File struct {
	Plan Plan

	path, dir string
	again     bool              // refused rows are sent again as they are
	slugs     map[string]int    // the lines of the organizations
	ids       map[string]string // those of organizations, by slug, as far as they are known
	rows      map[name]unique.Handle[answer]

	sound   int64    // the length of the journal's whole lines, as read or synced
	file    *os.File // the journal; nil before the first line is written, and after a failure
	pending []byte   // lines that are not written yet
	bound   bool     // this process has kept which project the answers are of
}

const (
	// mostProblems bounds those that are listed.
	mostProblems = 100
	// longestLine bounds a line, in bytes.
	longestLine = 256 << 10
)

// check reads the file twice, once for its organizations, and checks all rows.
func (f *File) check() error {
	err := f.each(func(r *Row, _ error) error {
		if r != nil && r.Type == TypeOrganization && f.slugs[r.OrganizationSlug] == 0 {
			f.slugs[r.OrganizationSlug], f.ids[r.OrganizationSlug] = r.line, f.organization(r)
		}
		return nil
	})
	if err != nil {
		return err
	}
	var problems []error
	seen, line := map[name]int{}, 0
	err = f.each(func(r *Row, err error) error {
		if line++; err == nil {
			err = f.add(r, seen)
		}
		if err != nil && len(problems) < mostProblems {
			problems = append(problems, err)
		}
		return nil
	})
	switch {
	case err == nil && line == 0:
		err = fmt.Errorf("%s has no rows", f.path)
	case err == nil && len(problems) > 0:
		err = fmt.Errorf("%w\nthese rows are wrong (the first %d are listed); nothing is sent before all are right", errors.Join(problems...), mostProblems)
	}
	return err
}

// each reads all rows; the error of a row names its line.
func (f *File) each(visit func(*Row, error) error) error {
	in, err := durable.Open(f.path)
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }() // it was only read
	lines, line := bufio.NewScanner(in), 1
	lines.Buffer(nil, longestLine)
	for ; lines.Scan(); line++ {
		text := bytes.TrimSpace(lines.Bytes())
		if len(text) == 0 {
			continue
		}
		r, err := readRow(line, text)
		if err != nil {
			r, err = nil, fmt.Errorf("line %d: %w", line, err)
		}
		if err := visit(r, err); err != nil {
			return err
		}
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("read line %d of %s, of at most %d KiB: %w", line, f.path, longestLine>>10, err)
	}
	return nil
}

// add checks a row against those before it, and counts it.
func (f *File) add(r *Row, seen map[name]int) error {
	flavour := B2B
	if r.Type == TypeSession && !r.ofOrganization() {
		flavour = Consumer
	}
	if f.Plan.Flavour.Name == "" {
		f.Plan.Flavour = flavour
	}
	of := r.OrganizationSlug + "\x00" + r.OrganizationID
	switch {
	case r.Type == TypeSession, r.Type == TypePassword && f.Plan.Passwords == Shared:
		of = ""
	case r.Type == TypeOrganization:
		of = r.OrganizationSlug
	}
	key := nameOf(r.Type, of, strings.ToLower(r.EmailAddress), r.SessionToken.Reveal())
	switch {
	case flavour != f.Plan.Flavour:
		return fmt.Errorf("line %d: sessions without an organization are of the consumer flavour, and all else is B2B: use a file for each", r.line)
	case r.Type == TypePassword && f.Plan.Passwords == "":
		return fmt.Errorf("line %d: there are passwords: say by --passwords whether they are shared or scoped, as the project has it", r.line)
	case r.OrganizationSlug != "" && f.slugs[r.OrganizationSlug] == 0:
		return fmt.Errorf("line %d: no row is an organization with the slug %.60q", r.line, r.OrganizationSlug)
	case seen[key] > 0:
		return fmt.Errorf("line %d: line %d is for the same %s", r.line, seen[key], r.Type)
	}
	seen[key] = r.line
	f.Plan.Rows[r.Type]++
	return nil
}
