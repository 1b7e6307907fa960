package kafka

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/binary"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/config/secret"
	"github.com/auditrelay/auditrelay/relay"
	"github.com/auditrelay/auditrelay/relay/relaytest"
)

func kafkaError(code int) error { return kafka.Error(code) }

func TestSASL(t *testing.T) {
	t.Parallel()
	for mechanism, name := range map[string]string{
		"plain": "PLAIN", "scram-sha-256": "SCRAM-SHA-256", "scram-sha-512": "SCRAM-SHA-512",
	} {
		t.Run(mechanism, func(t *testing.T) {
			t.Parallel()
			const right, wrong = "right-horse-7", "wrong-horse-8"
			c := newCluster(t, kfake.EnableSASL(), kfake.Superuser(name, "relay", right))
			login := func(password string) *Sink {
				return c.sink(t, func(cfg *config.Kafka) {
					cfg.SASL = &config.KafkaSASL{Mechanism: mechanism, Username: "relay", Password: secret.New(password)}
				})
			}
			require.NoError(t, login(right).Deliver(t.Context(), relaytest.Events(3)))

			err := login(wrong).Deliver(t.Context(), relaytest.Events(3))
			require.ErrorIs(t, err, kafka.SASLAuthenticationFailed)
			require.ErrorContains(t, err, "check sasl.username and sasl.password")
			assert.Equal(t, relay.ClassAuthentication, relay.ClassOf(err))
			assert.False(t, relay.IsPermanent(err))
			assert.NotContains(t, fmt.Sprintf("%v %#v", err, err), wrong)
		})
	}
	t.Run("quoted by the broker", func(t *testing.T) {
		t.Parallel()
		const password = "quoted-horse-9"
		c := newCluster(t, kfake.EnableSASL(), kfake.Superuser("PLAIN", "relay", password))
		c.ControlKey(int16(kmsg.SASLAuthenticate), func(r kmsg.Request) (kmsg.Response, error, bool) {
			res := r.ResponseKind().(*kmsg.SASLAuthenticateResponse)
			res.ErrorCode = kerr.SaslAuthenticationFailed.Code
			res.ErrorMessage = kmsg.StringPtr("no such password: " + password)
			return res, nil, true
		})
		s := c.sink(t, func(cfg *config.Kafka) {
			cfg.SASL = &config.KafkaSASL{Mechanism: "plain", Username: "relay", Password: secret.New(password)}
		})
		err := s.Deliver(t.Context(), relaytest.Events(1))
		require.ErrorIs(t, err, kafka.SASLAuthenticationFailed)
		assert.NotContains(t, err.Error(), password)
	})
	t.Run("not offered", func(t *testing.T) {
		t.Parallel()
		c := newCluster(t, kfake.EnableSASL(), kfake.Superuser("PLAIN", "relay", "x"))
		s := c.sink(t, func(cfg *config.Kafka) {
			cfg.SASL = &config.KafkaSASL{Mechanism: "scram-sha-512", Username: "relay", Password: secret.New("x")}
		})
		require.Error(t, s.Deliver(t.Context(), relaytest.Events(1)))
	})
}

// A revoked permission costs no event: the sink waits until it is granted again.
func TestRevokedPermission(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	s := c.sink(t, nil)
	require.NoError(t, s.Deliver(t.Context(), relaytest.Events(1)))
	revoked := c.Fault(kfake.Fault{
		Keys: []kmsg.Key{kmsg.Produce, kmsg.Metadata}, Topic: testTopic, Err: kerr.TopicAuthorizationFailed, Count: -1,
	})
	for range 3 {
		err := s.Deliver(t.Context(), relaytest.Events(3, relaytest.From(1)))
		require.ErrorIs(t, err, kafka.TopicAuthorizationFailed)
		require.ErrorContains(t, err, "grant the sink's principal")
		require.Equal(t, relay.ClassAuthentication, relay.ClassOf(err))
		require.False(t, relay.IsPermanent(err))
	}
	revoked.Remove()
	require.NoError(t, s.Deliver(t.Context(), relaytest.Events(3, relaytest.From(1))))
}

func TestTLS(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t)
	c := newCluster(t, kfake.TLS(&tls.Config{
		Certificates: []tls.Certificate{ca.issue(t, "broker")},
		ClientCAs:    ca.pool, ClientAuth: tls.RequireAndVerifyClientCert, MinVersion: tls.VersionTLS12,
	}))
	certFile, keyFile := ca.files(t, "client")
	good := config.TLSClient{CAFile: ca.file, CertFile: certFile, KeyFile: keyFile}
	deliver := func(tls *config.TLSClient) error {
		s := c.sink(t, func(cfg *config.Kafka) { cfg.TLS = tls })
		return s.Deliver(t.Context(), relaytest.Events(3))
	}
	require.NoError(t, deliver(&good))

	require.ErrorContains(t, deliver(&config.TLSClient{CAFile: ca.file}), "certificate required")
	require.ErrorContains(t, deliver(&config.TLSClient{CertFile: certFile, KeyFile: keyFile}), "unknown authority")
	named := good
	named.ServerName = "other.example"
	require.ErrorContains(t, deliver(&named), "other.example")

	_, err := New(complete(t, config.Kafka{Brokers: []string{"b:1"}, TLS: &config.TLSClient{CAFile: "missing.pem"}}), Options{})
	require.ErrorContains(t, err, "missing.pem")
}

// A peer that is no Kafka broker is reported at once, and gets no memory.
func TestNotKafka(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t)
	secured := newCluster(t, kfake.TLS(&tls.Config{
		Certificates: []tls.Certificate{ca.issue(t, "broker")}, MinVersion: tls.VersionTLS12,
	}))
	for name, address := range map[string]string{
		"web server": answering(t, "HTTP/1.1 400 Bad Request\r\n\r\n"),
		"tls":        secured.ListenAddrs()[0],
		"tls alert":  answering(t, "\x15\x03\x03\x00\x02\x02\x46"),
		"all ones":   answering(t, "\xff\xff\xff\xff\xff\xff\xff\xff"),
	} {
		s, err := New(complete(t, config.Kafka{Brokers: []string{address}}), Options{})
		require.NoError(t, err)
		start := time.Now()
		err = s.Deliver(t.Context(), relaytest.Events(1))
		require.ErrorContains(t, err, "check the port, and whether it expects TLS", name)
		assert.False(t, relay.IsPermanent(err))
		assert.Less(t, time.Since(start), requestTimeout, name)
		require.NoError(t, s.Close())
	}
}

// answering listens, and sends text to everybody who sends something.
func answering(t *testing.T, text string) string {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = c.Read(make([]byte, 1024))
			_, _ = io.WriteString(c, text)
			t.Cleanup(func() { _ = c.Close() })
		}
	}()
	return l.Addr().String()
}

// chunks is a peer that sends a stream in pieces.
type chunks struct {
	net.Conn

	rest []byte
	size int
}

func (c *chunks) Read(b []byte) (int, error) {
	if len(c.rest) == 0 {
		return 0, io.EOF
	}
	n := copy(b[:min(len(b), c.size)], c.rest)
	c.rest = c.rest[n:]
	return n, nil
}

// FuzzFramed checks that of any stream the whole answers are read, and nothing else.
func FuzzFramed(f *testing.F) {
	f.Add([]byte{0, 0, 0, 2, 1, 2, 0, 0, 0, 0}, uint8(3))
	f.Add([]byte("HTTP/1.1 200 OK"), uint8(1))
	f.Add([]byte{0, 0}, uint8(1))
	f.Fuzz(func(t *testing.T, stream []byte, chunk uint8) {
		want := 0
		for len(stream) >= want+4 {
			size := int(binary.BigEndian.Uint32(stream[want:]))
			if size > maxAnswer || len(stream) < want+4+size {
				break
			}
			want += 4 + size
		}
		in := newFramed(&chunks{rest: stream, size: int(chunk) + 1})
		in.check = func([]byte) error { return nil }
		got, err := io.ReadAll(in)
		assert.Equal(t, string(stream[:want]), string(got))
		assert.Equal(t, want == len(stream), err == nil)
	})
}

func TestNewErrors(t *testing.T) {
	t.Parallel()
	cfg := config.Kafka{Brokers: []string{"127.0.0.1:9092"}}
	cfg.SASL = &config.KafkaSASL{Mechanism: "scram-sha-256", Username: "u", Password: secret.New("a\x07b")}
	_, err := New(complete(t, cfg), Options{})
	require.ErrorContains(t, err, "SCRAM forbids")
	assert.NotContains(t, err.Error(), "a\x07b")
}

// authority is a certificate authority for tests.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pool *x509.CertPool
	file string
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	of := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test CA"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, of, of, &key.PublicKey, key)
	require.NoError(t, err)
	cert, err := x509.ParseCertificate(der)
	require.NoError(t, err)
	a := &authority{cert: cert, key: key, pool: x509.NewCertPool(), file: filepath.Join(t.TempDir(), "ca.pem")}
	a.pool.AddCert(cert)
	writePEM(t, a.file, "CERTIFICATE", der)
	return a
}

func (a *authority) issue(t *testing.T, name string) tls.Certificate {
	t.Helper()
	certFile, keyFile := a.files(t, name)
	pair, err := tls.LoadX509KeyPair(certFile, keyFile)
	require.NoError(t, err)
	return pair
}

func (a *authority) files(t *testing.T, name string) (certFile, keyFile string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, DNSNames: []string{"localhost"},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
	}, a.cert, &key.PublicKey, a.key)
	require.NoError(t, err)
	pkcs8, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(t, err)
	dir := t.TempDir()
	certFile, keyFile = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	writePEM(t, certFile, "CERTIFICATE", der)
	writePEM(t, keyFile, "PRIVATE KEY", pkcs8)
	return certFile, keyFile
}

func writePEM(t *testing.T, file, kind string, der []byte) {
	t.Helper()
	require.NoError(t, os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600))
}
