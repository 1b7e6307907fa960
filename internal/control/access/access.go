// Package access knows what the visitors of the console in the browser may do.
package access

import (
	"cmp"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"

	"golang.org/x/time/rate"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/internal/trail/audit"
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

const (
	// An address may try to log in this often: so many at once, and one more each second.
	attemptsAtOnce, attemptsPerSecond = 20, 1
	// mostAddresses bounds the addresses that are remembered. Tokens are too long to be guessed; the
	// limit keeps visitors from making the relay, and the provider, work.
	mostAddresses = 1024
)

// attempts limit how often an address tries to log in.
type attempts struct {
	mu sync.Mutex
	of map[netip.Prefix]*rate.Limiter // guarded by mu
}

func (a *attempts) allow(remote string) bool {
	host, _, _ := net.SplitHostPort(remote)
	address, _ := netip.ParseAddr(host)
	bits := 64 // an IPv6 address is one of a household's many
	if address = address.Unmap().WithZone(""); address.Is4() {
		bits = 32
	}
	from, _ := address.Prefix(bits)
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.of[from] == nil && len(a.of)%mostAddresses == 0 { // at first, and when it is full
		a.of = map[netip.Prefix]*rate.Limiter{}
	}
	if a.of[from] == nil {
		a.of[from] = rate.NewLimiter(attemptsPerSecond, attemptsAtOnce)
	}
	return a.of[from].Allow()
}

func (a *Access) limited(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if !a.attempts.allow(r.RemoteAddr) {
			w.Header().Set("Retry-After", "10")
			a.refuse(w, http.StatusTooManyRequests, "There were too many logins from your address. Try again in some seconds.")
			return
		}
		next(w, r)
	}
}

// byCertificate is whom the client certificate of a request names, with the role that the rules give it.
// The TLS server has verified the certificate.
func byCertificate(rules []config.CertificateRole, r *http.Request) (by audit.Person, role Role) {
	if r.TLS == nil || len(r.TLS.VerifiedChains) == 0 {
		return by, 0
	}
	leaf := r.TLS.PeerCertificates[0]
	for _, rule := range rules {
		if granted(rule.Role) > role && fits(rule, leaf) {
			role = granted(rule.Role)
		}
	}
	return audit.Person{
		User: bounded(nameIn(leaf)), Host: bounded(cmp.Or(leaf.Issuer.CommonName, leaf.Issuer.String())),
		By: audit.ByCertificate, Subject: leaf.SerialNumber.Text(16),
	}, role
}

func fits(rule config.CertificateRole, leaf *x509.Certificate) bool {
	if rule.SAN != "" {
		return slices.Contains(namesIn(leaf), rule.SAN)
	}
	kind, value, _ := strings.Cut(rule.Subject, "=")
	return slices.Contains(attributes(leaf.Subject, kind), value)
}

// namesIn are the subject's alternative names that a rule may name.
func namesIn(leaf *x509.Certificate) []string {
	names := slices.Concat(leaf.EmailAddresses, leaf.DNSNames)
	for _, u := range leaf.URIs {
		names = append(names, u.String())
	}
	return names
}

func attributes(n pkix.Name, kind string) []string {
	return map[string][]string{"CN": {n.CommonName}, "O": n.Organization, "OU": n.OrganizationalUnit}[kind]
}

// nameIn is what people call the certificate's holder.
func nameIn(leaf *x509.Certificate) string {
	if names := namesIn(leaf); leaf.Subject.CommonName == "" && len(names) > 0 {
		return names[0]
	}
	return cmp.Or(leaf.Subject.CommonName, leaf.Subject.String())
}

// longestName bounds a name from outside, in bytes.
const longestName = 200

func bounded(name string) string {
	return strings.ToValidUTF8(name[:min(len(name), longestName)], "")
}
