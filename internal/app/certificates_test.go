package app

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"log/slog"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/internal/control/admin"
)

// issue writes a certificate that expires then, and its key.
func issue(t *testing.T, dir, name string, expires time.Time) (certFile, keyFile string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := x509.Certificate{SerialNumber: big.NewInt(expires.Unix()), Subject: pkix.Name{CommonName: name}, NotAfter: expires}
	der, err := x509.CreateCertificate(rand.Reader, &template, &template, &key.PublicKey, key)
	require.NoError(t, err)
	private, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(t, err)
	certFile, keyFile = filepath.Join(dir, name+".crt"), filepath.Join(dir, name+".key")
	require.NoError(t, os.WriteFile(certFile, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600))
	require.NoError(t, os.WriteFile(keyFile, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}), 0o600))
	return certFile, keyFile
}

func privateOf(p *process) *admin.Handler { return admin.New(p.reg, admin.Options{}) }

func TestExpiryOfEachCertificate(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	of := func(name string, expires int64) (string, string) { return issue(t, dir, name, time.Unix(expires, 0)) }
	admin, client := &config.TLSServer{}, &config.TLSClient{}
	admin.CertFile, admin.KeyFile = of("admin", 2_000_000_000)
	client.CertFile, client.KeyFile = of("client", 2_100_000_000)
	cfg := testConfig(dir, config.Sink{Name: "broker", Kafka: &config.Kafka{TLS: client}}, config.Sink{Name: "roots", Kafka: &config.Kafka{TLS: &config.TLSClient{}}})
	cfg.Admin.TLS = admin
	p := runsWith(&process{reg: prometheus.NewRegistry(), log: slog.New(slog.DiscardHandler)}, cfg)
	p.admin = privateOf(p)
	defer func() { assert.NoError(t, p.stack.unwind(t.Context())) }()
	p.stack.log = p.log
	require.NoError(t, p.startCertificates(t.Context()))
	const name = "auditrelay_tls_certificate_expiry_timestamp_seconds"
	want := func(admin, broker string) {
		t.Helper()
		assert.NoError(t, testutil.GatherAndCompare(p.reg, strings.NewReader(
			"# HELP "+name+" When a certificate expires: of a listener (ingest, admin, trail, console), or shown as a client (journal, traces, heartbeat, oidc, sink/NAME, witness/N).\n"+
				"# TYPE "+name+" gauge\n"+name+`{listener="admin"} `+admin+"\n"+name+`{listener="sink/broker"} `+broker+"\n"), name))
	}
	want("2e+09", "2.1e+09")
	admin.CertFile, admin.KeyFile = of("admin", 2_050_000_000) // renewed while the relay runs
	later := time.Now().Add(time.Minute)
	require.NoError(t, os.Chtimes(admin.CertFile, later, later))
	want("2.05e+09", "2.1e+09")

	next := *cfg // a reload gives a sink another pair
	other := &config.TLSClient{}
	other.CertFile, other.KeyFile = of("other", 2_200_000_000)
	next.Sinks = []config.Sink{{Name: "broker", Kafka: &config.Kafka{TLS: other}}}
	require.NoError(t, p.certificates.follow(&next))
	want("2.05e+09", "2.2e+09")
}

// A pair that cannot be used, and one that has expired, are told by the relay itself:
// peers only notice the latter.
func TestFaultsOfCertificates(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	server := &config.TLSServer{}
	server.CertFile, server.KeyFile = issue(t, dir, "served", time.Now().Add(365*24*time.Hour))
	cfg := testConfig(dir)
	cfg.Admin.TLS = server
	var log bytes.Buffer
	p := runsWith(&process{reg: prometheus.NewRegistry(), log: slog.New(slog.NewTextHandler(&log, nil))}, cfg)
	p.stack.log = slog.New(slog.DiscardHandler)
	p.admin = privateOf(p)
	require.NoError(t, p.startCertificates(t.Context()))
	require.NoError(t, p.stack.unwind(t.Context())) // the looks are the test's
	reason := func() string {
		for _, part := range p.admin.Readiness(t.Context()).Parts {
			if part.Name == "certificates" {
				return part.State + ": " + part.Reason
			}
		}
		return "no such part"
	}
	assert.Contains(t, reason(), "all can be used")

	c := p.certificates
	write := func(file, text string) {
		later := time.Now().Add(time.Minute)
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
		require.NoError(t, os.Chtimes(file, later, later))
	}
	whole, err := os.ReadFile(server.CertFile)
	require.NoError(t, err)
	write(server.CertFile, "half a certif")
	assert.Contains(t, reason(), "warning: admin: the certificate "+server.CertFile+" cannot be used with the key ")
	assert.Contains(t, reason(), "the one read before is used, until ")
	c.look(p.log)
	assert.Empty(t, log.String(), "it may be under way")
	c.look(p.log)
	c.look(p.log)
	assert.Equal(t, 1, strings.Count(log.String(), "level=ERROR"), log.String())

	write(server.CertFile, string(whole))
	c.look(p.log)
	assert.Contains(t, log.String(), "a certificate can be used again")

	issue(t, dir, "served", time.Now().Add(24*time.Hour))
	later := time.Now().Add(2 * time.Minute)
	require.NoError(t, os.Chtimes(server.CertFile, later, later))
	assert.Contains(t, reason(), "warning: admin: the certificate in use expires on ")
	issue(t, dir, "served", time.Now().Add(-time.Hour))
	later = later.Add(time.Minute)
	require.NoError(t, os.Chtimes(server.CertFile, later, later))
	assert.Contains(t, reason(), "warning: admin: the certificate "+server.CertFile+" expired on ")
}
