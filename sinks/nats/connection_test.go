package nats

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nkeys"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/config/secret"
	"github.com/auditrelay/auditrelay/internal/testbed/waiting"
	"github.com/auditrelay/auditrelay/relay"
	"github.com/auditrelay/auditrelay/relay/relaytest"
)

func TestNewNamesTheSetting(t *testing.T) {
	t.Parallel()
	for want, cfg := range map[string]config.NATS{
		"credentials_file": {URL: "nats://a", CredentialsFile: "/nowhere"},
		"nkey_file":        {URL: "nats://a", NKeyFile: "/nowhere"},
		"tls":              {URL: "nats://a", TLS: &config.TLSClient{CAFile: "/nowhere"}},
	} {
		_, err := New(complete(t, cfg), Options{})
		require.ErrorContains(t, err, want)
	}
}

func TestWrongCredentialsAreWorthAnotherTry(t *testing.T) {
	t.Parallel()
	srv := startServer(t, nil)
	sink := newSink(t, srv.Addr().String(), func(c *config.NATS) { c.Password = secret.New("wrong-horse-battery") })
	err := sink.Deliver(t.Context(), relaytest.Events(1))
	require.ErrorContains(t, err, "Authorization Violation")
	assert.Equal(t, relay.ClassAuthentication, relay.ClassOf(err))
	require.ErrorContains(t, err, srv.Addr().String())
	require.NotContains(t, err.Error(), "wrong-horse")
	require.False(t, relay.IsPermanent(err))
}

// The server answers a forbidden publish with an error of its own, and with no acknowledgement.
func TestForbiddenSubjectIsNamedSoon(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"jetstream", "core"} {
		srv := startServer(t, func(o *server.Options) {
			o.Username, o.Password = "", ""
			o.Users = []*server.User{{Username: testUser, Password: testPassword, Permissions: &server.Permissions{
				Publish: &server.SubjectPermission{Allow: []string{"other.>"}},
			}}}
		})
		sink := newSink(t, srv.Addr().String(), func(c *config.NATS) { c.Mode = mode })
		ctx, cancel := context.WithTimeout(t.Context(), waiting.Stall)
		defer cancel()
		err := sink.Deliver(ctx, relaytest.Events(3000))
		require.ErrorContains(t, err, "auditrelay.acme.production", mode)
		require.NoError(t, ctx.Err(), "told at once")
		require.False(t, relay.IsPermanent(err))
	}
}

func TestCredentials(t *testing.T) {
	t.Parallel()
	user, err := nkeys.CreateUser()
	require.NoError(t, err)
	public, err := user.PublicKey()
	require.NoError(t, err)
	seed, err := user.Seed()
	require.NoError(t, err)
	seedFile := filepath.Join(t.TempDir(), "seed")
	require.NoError(t, os.WriteFile(seedFile, seed, 0o600))
	for name, c := range map[string]struct {
		server func(*server.Options)
		client config.NATS
	}{
		"token": {
			func(o *server.Options) { o.Authorization = "a-token-of-trust" },
			config.NATS{Token: secret.New("a-token-of-trust")},
		},
		"nkey": {
			func(o *server.Options) { o.Nkeys = []*server.NkeyUser{{Nkey: public}} },
			config.NATS{NKeyFile: seedFile},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv := startServer(t, func(o *server.Options) {
				o.Username, o.Password, o.JetStream = "", "", false
				c.server(o)
			})
			cfg := c.client
			cfg.URL, cfg.Mode = srv.ClientURL(), "core"
			sink, err := New(complete(t, cfg), Options{})
			require.NoError(t, err)
			assert.NoError(t, sink.Deliver(t.Context(), relaytest.Events(10)))
			assert.NoError(t, sink.Close())
		})
	}
}

func TestTLS(t *testing.T) {
	t.Parallel()
	caFile, certificate := selfSigned(t)
	srv := startServer(t, func(o *server.Options) {
		o.TLSConfig = &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12}
	})
	sink := newSink(t, srv.Addr().String(), func(c *config.NATS) {
		c.TLS, c.CreateStream = &config.TLSClient{CAFile: caFile}, testStream
	})
	events := relaytest.Events(5000)
	require.NoError(t, sink.Deliver(t.Context(), events))
	js, err := jetstream.New(dial(t, srv, natsgo.RootCAs(caFile)))
	require.NoError(t, err)
	stream, err := js.Stream(t.Context(), testStream)
	require.NoError(t, err)
	assert.EqualValues(t, 5000, stream.CachedInfo().State.Msgs)

	stranger := newSink(t, srv.Addr().String(), func(c *config.NATS) { c.TLS = &config.TLSClient{ServerName: "localhost"} })
	err = stranger.Deliver(t.Context(), events)
	require.ErrorContains(t, err, "certificate")
}

func selfSigned(t *testing.T) (caFile string, certificate tls.Certificate) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	require.NoError(t, err)
	caFile = filepath.Join(t.TempDir(), "ca.pem")
	require.NoError(t, os.WriteFile(caFile, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600))
	return caFile, tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}
