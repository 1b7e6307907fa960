package config

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/internal/testbed/waiting"
)

// writePair writes a self-signed certificate for 127.0.0.1 and its key to
// DIR/tls.crt and DIR/tls.key, and dates them.
func writePair(t *testing.T, dir string, serial int64, modified time.Time) (certFile, keyFile string) {
	t.Helper()
	certFile, keyFile = filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
	issue(t, certFile, keyFile, serial, time.Now().Add(time.Hour))
	for _, file := range []string{certFile, keyFile} {
		require.NoError(t, os.Chtimes(file, modified, modified))
	}
	return certFile, keyFile
}

// validFor writes a certificate that is valid for d, and its key.
func validFor(t *testing.T, certFile, keyFile string, d time.Duration) {
	t.Helper()
	issue(t, certFile, keyFile, 1, time.Now().Add(d))
}

func issue(t *testing.T, certFile, keyFile string, serial int64, ends time.Time) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(serial), NotBefore: ends.Add(-366 * 24 * time.Hour), NotAfter: ends,
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, DNSNames: []string{"relay.example.com"}, BasicConstraintsValid: true, IsCA: true,
	}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	require.NoError(t, err)
	private, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(t, err)
	for file, block := range map[string]*pem.Block{
		certFile: {Type: "CERTIFICATE", Bytes: cert},
		keyFile:  {Type: "PRIVATE KEY", Bytes: private},
	} {
		require.NoError(t, os.WriteFile(file, pem.EncodeToMemory(block), 0o600))
	}
}

// handshake connects a client to a server and returns the serial numbers that the client and
// the server saw (0 for none).
func handshake(t *testing.T, server, client *tls.Config) (ofServer, ofClient int64) {
	t.Helper()
	near, far := net.Pipe()
	s := tls.Server(near, server)
	c := tls.Client(far, client)
	t.Cleanup(func() { _, _ = near.Close(), far.Close() })
	// Both ends of a pipe may be writing when one refuses the other.
	ctx, cancel := context.WithTimeout(t.Context(), waiting.Stall)
	defer cancel()
	served := make(chan error, 1)
	go func() { served <- s.HandshakeContext(ctx) }()
	require.NoError(t, c.HandshakeContext(ctx))
	require.NoError(t, <-served)
	if peers := s.ConnectionState().PeerCertificates; len(peers) > 0 {
		ofClient = peers[0].SerialNumber.Int64()
	}
	return c.ConnectionState().PeerCertificates[0].SerialNumber.Int64(), ofClient
}

func TestTLSIsReadAgainWhenItChanges(t *testing.T) {
	t.Parallel()
	serverDir, clientDir := t.TempDir(), t.TempDir()
	long := time.Now().Add(-time.Hour)
	serverCert, serverKey := writePair(t, serverDir, 1, long)
	clientCert, clientKey := writePair(t, clientDir, 2, long)
	server, err := (&TLSServer{CertFile: serverCert, KeyFile: serverKey}).ServerConfig()
	require.NoError(t, err)
	server.ClientAuth = tls.RequireAnyClientCert
	connect := func() (int64, int64) {
		client, err := (&TLSClient{
			CAFile: serverCert, CertFile: clientCert, KeyFile: clientKey, ServerName: "127.0.0.1",
		}).ClientConfig()
		require.NoError(t, err)
		return handshake(t, server, client)
	}
	client, err := (&TLSClient{CAFile: serverCert, CertFile: clientCert, KeyFile: clientKey, ServerName: "127.0.0.1"}).ClientConfig()
	require.NoError(t, err)
	ofServer, ofClient := handshake(t, server, client)
	assert.Equal(t, []int64{1, 2}, []int64{ofServer, ofClient})

	writePair(t, clientDir, 3, time.Now())
	_, ofClient = handshake(t, server, client)
	assert.EqualValues(t, 3, ofClient, "the client's new certificate is not shown")

	writePair(t, serverDir, 4, time.Now())
	ofServer, _ = connect()
	assert.EqualValues(t, 4, ofServer, "the server's new certificate is not shown")

	// While only one of the two files is replaced, the previous pair is served.
	require.NoError(t, os.WriteFile(serverKey, []byte("half a key"), 0o600))
	ofServer, _ = connect()
	assert.EqualValues(t, 4, ofServer)
	require.NoError(t, os.Remove(serverKey))
	ofServer, _ = connect()
	assert.EqualValues(t, 4, ofServer)
}

func TestClientsMustShowACertificate(t *testing.T) {
	t.Parallel()
	long := time.Now().Add(-time.Hour)
	serverCert, serverKey := writePair(t, t.TempDir(), 1, long)
	clientCert, clientKey := writePair(t, t.TempDir(), 2, long)
	otherCert, otherKey := writePair(t, t.TempDir(), 3, long)
	authorities := filepath.Join(t.TempDir(), "ca.crt")
	trust := func(certFile string, modified time.Time) {
		pem, err := os.ReadFile(certFile)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(authorities, pem, 0o600))
		require.NoError(t, os.Chtimes(authorities, modified, modified))
	}
	trust(clientCert, long)
	server, err := (&TLSServer{CertFile: serverCert, KeyFile: serverKey, ClientCAFile: authorities}).ServerConfig()
	require.NoError(t, err)
	accepted := func(certFile, keyFile string) bool {
		client, err := (&TLSClient{CAFile: serverCert, CertFile: certFile, KeyFile: keyFile, ServerName: "127.0.0.1"}).ClientConfig()
		require.NoError(t, err)
		near, far := net.Pipe()
		defer func() { _, _ = near.Close(), far.Close() }()
		go func() { _ = tls.Client(far, client).HandshakeContext(t.Context()); _ = far.Close() }()
		return tls.Server(near, server).HandshakeContext(t.Context()) == nil
	}
	assert.True(t, accepted(clientCert, clientKey))
	assert.False(t, accepted(otherCert, otherKey))
	assert.False(t, accepted("", ""), "none at all")

	trust(otherCert, time.Now())
	assert.True(t, accepted(otherCert, otherKey), "the file is read again")
	assert.False(t, accepted(clientCert, clientKey))
	require.NoError(t, os.WriteFile(authorities, []byte("half"), 0o600))
	assert.True(t, accepted(otherCert, otherKey), "half of a replacement")
	assert.False(t, accepted(clientCert, clientKey))

	_, err = (&TLSServer{CertFile: serverCert, KeyFile: serverKey, ClientCAFile: authorities}).ServerConfig()
	require.ErrorContains(t, err, authorities)
}

func TestTLSVersions(t *testing.T) {
	t.Parallel()
	certFile, keyFile := writePair(t, t.TempDir(), 1, time.Now())
	server, err := (&TLSServer{CertFile: certFile, KeyFile: keyFile}).ServerConfig()
	require.NoError(t, err)
	client, err := (&TLSClient{CAFile: certFile}).ClientConfig()
	require.NoError(t, err)
	assert.EqualValues(t, tls.VersionTLS12, server.MinVersion)
	assert.EqualValues(t, tls.VersionTLS12, client.MinVersion)
	assert.Nil(t, client.GetClientCertificate)
}

func TestTLSNotGiven(t *testing.T) {
	t.Parallel()
	client, err := (*TLSClient)(nil).ClientConfig()
	require.NoError(t, err)
	assert.Nil(t, client)
	server, err := (*TLSServer)(nil).ServerConfig()
	require.NoError(t, err)
	assert.Nil(t, server)
}

func TestTLSErrorsNameTheFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	certFile, keyFile := writePair(t, dir, 1, time.Now())
	missing, junk := filepath.Join(dir, "missing"), filepath.Join(dir, "junk")
	require.NoError(t, os.WriteFile(junk, []byte("junk"), 0o600))
	for name, c := range map[string]struct {
		client TLSClient
		want   string
	}{
		"missing CA":          {TLSClient{CAFile: missing}, missing},
		"CA of no PEM":        {TLSClient{CAFile: junk}, junk},
		"missing key":         {TLSClient{CertFile: certFile, KeyFile: missing}, missing},
		"missing certificate": {TLSClient{CertFile: missing, KeyFile: keyFile}, missing},
		"junk":                {TLSClient{CertFile: certFile, KeyFile: junk}, junk},
		"half":                {TLSClient{CertFile: certFile}, "key_file"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := c.client.ClientConfig()
			require.ErrorContains(t, err, c.want)
		})
	}
	_, err := (&TLSServer{CertFile: missing, KeyFile: keyFile}).ServerConfig()
	require.ErrorContains(t, err, missing)
}

// The authorities of a client that asks for them at each handshake are followed; broken ones are not
// used.
func TestAuthoritiesAreReadAgain(t *testing.T) {
	t.Parallel()
	firstDir, secondDir := t.TempDir(), t.TempDir()
	first, _ := writePair(t, firstDir, 1, time.Now().Add(-time.Hour))
	second, _ := writePair(t, secondDir, 2, time.Now())
	file := filepath.Join(t.TempDir(), "ca.crt")
	copyFile(t, first, file)
	authorities, err := (&TLSClient{CAFile: file}).Authorities()
	require.NoError(t, err)
	poolOf := func(file string) *x509.CertPool {
		pool, err := readRoots(file)
		require.NoError(t, err)
		return pool
	}
	assert.True(t, poolOf(first).Equal(authorities()))
	require.NoError(t, os.WriteFile(file, []byte("half a certificate"), 0o600))
	assert.True(t, poolOf(first).Equal(authorities()))
	copyFile(t, second, file)
	assert.True(t, poolOf(second).Equal(authorities()))

	authorities, err = (&TLSClient{}).Authorities()
	require.NoError(t, err)
	assert.Nil(t, authorities, "the system's")
	_, err = (&TLSClient{CAFile: filepath.Join(firstDir, "missing")}).Authorities()
	require.ErrorContains(t, err, "missing")
}

// A transport trusts the authorities that are in the file when it connects, and the last good ones
// while the file is broken.
func TestATransportFollowsItsAuthorities(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	serve := func(serial int64, modified time.Time) (url, authority string) {
		certFile, keyFile := writePair(t, t.TempDir(), serial, modified)
		pair, err := tls.LoadX509KeyPair(certFile, keyFile)
		require.NoError(t, err)
		server := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
		server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
		server.TLS = &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}
		server.StartTLS()
		t.Cleanup(server.Close)
		return server.URL, certFile
	}
	began := time.Now().Add(-time.Hour)
	first, firstCA := serve(1, began)
	second, secondCA := serve(2, began)
	caFile := filepath.Join(dir, "ca.crt")
	put := func(text []byte, age int) {
		require.NoError(t, os.WriteFile(caFile, text, 0o600))
		at := began.Add(time.Duration(age) * time.Minute)
		require.NoError(t, os.Chtimes(caFile, at, at))
	}
	copyOf := func(file string) []byte {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		return text
	}
	put(copyOf(firstCA), 1)
	transport, err := (&TLSClient{CAFile: caFile}).Transport(&http.Transport{ForceAttemptHTTP2: true})
	require.NoError(t, err)
	client := &http.Client{Transport: transport}
	t.Cleanup(client.CloseIdleConnections)
	get := func(url string) error {
		resp, err := client.Get(url)
		if err == nil {
			err = resp.Body.Close()
		}
		return err
	}
	require.NoError(t, get(first))
	require.Error(t, get(second))
	put([]byte("half a certif"), 2)
	require.NoError(t, get(first))
	put(copyOf(secondCA), 3)
	require.NoError(t, get(second))
	require.Error(t, get(first), "no connection from before is used")
}
