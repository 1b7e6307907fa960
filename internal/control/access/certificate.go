package access

import (
	"cmp"
	"crypto/x509"
	"crypto/x509/pkix"
	"net/http"
	"slices"
	"strings"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/internal/trail/audit"
)

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
