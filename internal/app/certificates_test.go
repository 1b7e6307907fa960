package app

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
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
)

// issue writes a certificate that expires then, and its key.
func issue(t *testing.T, dir, name string, expires time.Time) (certFile, keyFile string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := x509.Certificate{SerialNumber: big.NewInt(expires.Unix()), NotAfter: expires}
	der, err := x509.CreateCertificate(rand.Reader, &template, &template, &key.PublicKey, key)
	require.NoError(t, err)
	private, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(t, err)
	certFile, keyFile = filepath.Join(dir, name+".crt"), filepath.Join(dir, name+".key")
	require.NoError(t, os.WriteFile(certFile, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600))
	require.NoError(t, os.WriteFile(keyFile, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}), 0o600))
	return certFile, keyFile
}

func TestExpiryOfEachCertificate(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	of := func(name string, expires int64) (string, string) { return issue(t, dir, name, time.Unix(expires, 0)) }
	admin, client := &config.TLSServer{}, &config.TLSClient{}
	admin.CertFile, admin.KeyFile = of("admin", 2_000_000_000)
	client.CertFile, client.KeyFile = of("client", 2_100_000_000)
	cfg := testConfig(dir, config.Sink{Name: "broker", Kafka: &config.Kafka{TLS: client}}, config.Sink{Name: "roots", Kafka: &config.Kafka{TLS: &config.TLSClient{}}})
	cfg.Admin.TLS = admin
	p := &process{cfg: cfg, reg: prometheus.NewRegistry()}
	require.NoError(t, p.startCertificates(t.Context()))
	const name = "auditrelay_tls_certificate_expiry_timestamp_seconds"
	want := func(admin string) {
		t.Helper()
		assert.NoError(t, testutil.GatherAndCompare(p.reg, strings.NewReader(
			"# HELP "+name+" When a certificate expires: of a listener (ingest, admin, trail), or shown as a client (journal, sink/NAME, witness/N).\n"+
				"# TYPE "+name+" gauge\n"+name+`{listener="admin"} `+admin+"\n"+name+`{listener="sink/broker"} 2.1e+09`+"\n"), name))
	}
	want("2e+09")
	admin.CertFile, admin.KeyFile = of("admin", 2_050_000_000) // renewed while the relay runs
	later := time.Now().Add(time.Minute)
	require.NoError(t, os.Chtimes(admin.CertFile, later, later))
	want("2.05e+09")
}
