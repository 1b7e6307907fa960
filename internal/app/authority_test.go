package app

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// authority signs certificates.
type authority struct {
	t    *testing.T
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{t: t}
	a.cert, a.key = a.issue("authority", nil)
	return a
}

// issue makes a certificate; for a nil authority it is one itself.
func (a *authority) issue(name string, by *authority) (*x509.Certificate, *ecdsa.PrivateKey) {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(a.t, err)
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	require.NoError(a.t, err)
	template := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(365 * 24 * time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: by == nil, BasicConstraintsValid: true,
	}
	parent, signer := template, key
	if by != nil {
		parent, signer = by.cert, by.key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	require.NoError(a.t, err)
	cert, err := x509.ParseCertificate(der)
	require.NoError(a.t, err)
	return cert, key
}

func pemOf(cert *x509.Certificate) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert.Raw}))
}

// pair is a certificate of the authority and its key, in PEM.
func (a *authority) pair(name string) (cert, key string) {
	a.t.Helper()
	leaf, private := a.issue(name, a)
	der, err := x509.MarshalPKCS8PrivateKey(private)
	require.NoError(a.t, err)
	return pemOf(leaf), string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}))
}

// mutual is a receiver that wants a certificate of its authority, and shows one.
type mutual struct {
	next http.Handler // answers; nil: an empty 200

	mu    sync.Mutex
	now   *authority // guarded by mu
	shown []string   // the names in the clients' certificates; guarded by mu
	key   string     // the newest header X-Key; guarded by mu
}

func (m *mutual) trust(a *authority) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.now = a
}

// client is what a client has to trust and to show at present.
func (m *mutual) client(name string) (*tls.Config, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	cert, key := m.now.pair(name)
	pair, err := tls.X509KeyPair([]byte(cert), []byte(key))
	roots := x509.NewCertPool()
	roots.AddCert(m.now.cert)
	return &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}, err
}

func (m *mutual) wasShown(name string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Contains(m.shown, name)
}

func (m *mutual) last() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.shown) == 0 {
		return ""
	}
	return m.shown[len(m.shown)-1]
}

func (m *mutual) lastKey() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.key
}

func (m *mutual) config(*tls.ClientHelloInfo) (*tls.Config, error) {
	c, err := m.client("receiver")
	if err != nil {
		return nil, err
	}
	c.ClientCAs, c.ClientAuth = c.RootCAs, tls.RequireAndVerifyClientCert
	return c, nil
}

// newMutual starts one with a certificate of an authority, and returns its address.
func newMutual(t *testing.T, of *authority) (m *mutual, url string) {
	t.Helper()
	m = &mutual{now: of}
	server := httptest.NewUnstartedServer(m)
	server.TLS = &tls.Config{GetConfigForClient: m.config, MinVersion: tls.VersionTLS12}
	server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	server.StartTLS()
	t.Cleanup(server.Close)
	return m, server.URL
}

func (m *mutual) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	m.mu.Lock()
	m.shown = append(m.shown, r.TLS.PeerCertificates[0].Subject.CommonName)
	m.key = r.Header.Get("X-Key")
	m.mu.Unlock()
	w.Header().Set("Connection", "close") // so that each request shakes hands
	if m.next != nil {
		m.next.ServeHTTP(w, r)
	}
}
