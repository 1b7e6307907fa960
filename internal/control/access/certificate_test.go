package access

import (
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"math/big"
	"net/http"
	"net/url"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/internal/trail/audit"
)

func TestRolesByCertificate(t *testing.T) {
	t.Parallel()
	id, err := url.Parse("spiffe://shop.example/ann")
	require.NoError(t, err)
	leaf := &x509.Certificate{
		SerialNumber: big.NewInt(0xa7), Subject: pkix.Name{CommonName: "Ann", OrganizationalUnit: []string{"Shop", "SRE"}, Organization: []string{"Example"}},
		Issuer: pkix.Name{CommonName: "People CA"}, EmailAddresses: []string{"ann@shop.example"}, DNSNames: []string{"ann.shop.example"}, URIs: []*url.URL{id},
	}
	visit := &http.Request{TLS: &tls.ConnectionState{PeerCertificates: []*x509.Certificate{leaf}, VerifiedChains: [][]*x509.Certificate{{leaf}}}}
	for want, rules := range map[Role][]config.CertificateRole{
		0:        {{Role: "operator", Subject: "OU=S"}, {Role: "operator", Subject: "O=SRE"}, {Role: "operator", Subject: "CN=ann"}, {Role: "operator", SAN: "Ann"}, {Role: "operator", SAN: "*@shop.example"}},
		Viewer:   {{Role: "viewer", Subject: "O=Example"}},
		Auditor:  {{Role: "viewer", Subject: "CN=Ann"}, {Role: "auditor", SAN: "spiffe://shop.example/ann"}},
		Operator: {{Role: "operator", Subject: "OU=SRE"}, {Role: "viewer", SAN: "ann.shop.example"}},
	} {
		by, role := byCertificate(rules, visit)
		assert.Equal(t, want, role)
		assert.Equal(t, audit.Person{User: "Ann", Host: "People CA", By: audit.ByCertificate, Subject: "a7"}, by)
	}
	all := []config.CertificateRole{{Role: "operator", Subject: "CN=Ann"}}
	for name, r := range map[string]*http.Request{
		"no TLS":         {},
		"no certificate": {TLS: &tls.ConnectionState{}},
		"not verified":   {TLS: &tls.ConnectionState{PeerCertificates: []*x509.Certificate{leaf}}},
	} {
		_, role := byCertificate(all, r)
		assert.Zero(t, role, name)
		_, in := (&Access{cfg: config.Console{Certificates: &config.ConsoleCertificates{Roles: all}}}).Of(r)
		assert.False(t, in, name)
	}
	v, in := (&Access{cfg: config.Console{Certificates: &config.ConsoleCertificates{Roles: all}}}).Of(visit)
	assert.True(t, in)
	assert.Equal(t, Operator, v.Role)
	_, in = (&Access{}).Of(visit)
	assert.False(t, in, "no certificates are configured")
}

func TestRolesHaveNames(t *testing.T) {
	t.Parallel()
	for _, r := range []Role{Viewer, Auditor, Operator} {
		var again Role
		text, err := r.MarshalText()
		require.NoError(t, err)
		require.NoError(t, again.UnmarshalText(text))
		assert.Equal(t, r, again)
	}
	err := new(Role).UnmarshalText([]byte("nobody"))
	require.Error(t, err)
}
