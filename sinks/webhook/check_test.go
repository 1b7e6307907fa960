package webhook

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"log/slog"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/config/secret"
	"github.com/auditrelay/auditrelay/relay"
	"github.com/auditrelay/auditrelay/relay/relaytest"
)

var _ relay.Checker = (*Sink)(nil)

// findings collects the findings of a check.
type findings map[string]string

func check(t *testing.T, s *Sink) (findings, error) {
	t.Helper()
	found := findings{}
	err := s.Check(t.Context(), func(what, text string) { found[what] = text })
	for what, text := range found {
		assert.NotContains(t, what+text, "hunter2")
	}
	if err != nil {
		assert.NotContains(t, err.Error(), "hunter2")
	}
	return found, err
}

func TestCheckReportsAndWritesNothing(t *testing.T) {
	t.Parallel()
	for _, secure := range []bool{true, false} {
		r := newReceiver(t, secure)
		s := newSink(t, r.config(t))
		found, err := check(t, s)
		require.NoError(t, err)
		assert.Equal(t, "127.0.0.1", found["addresses of 127.0.0.1"])
		assert.Equal(t, "to "+r.address, found["connection"])
		assert.Contains(t, found["path, headers and secret"], "not tried")
		if secure {
			assert.Equal(t, "TLS 1.3", found["encryption"])
			until := r.server.Certificate().NotAfter.Format(time.DateOnly)
			assert.Equal(t, "for 127.0.0.1, valid until "+until, found["certificate"])
		}
		r.down()
		assert.Empty(t, r.requests)
		_, err = check(t, s)
		require.ErrorContains(t, err, "connect: dial tcp "+r.address)
	}
}

func TestCheckFindsWhatADeliveryWould(t *testing.T) {
	t.Parallel()
	r := newReceiver(t, true)
	trusted := r.config(t)
	untrusted, otherName := trusted, trusted
	untrusted.TLS = nil
	otherName.TLS = &config.TLSClient{CAFile: trusted.TLS.CAFile, ServerName: "other.invalid"}
	for want, c := range map[string]config.Webhook{
		"shake hands with " + r.address + ": tls: failed to verify certificate: x509: certificate signed by unknown authority": untrusted,
		"not other.invalid; check tls.ca_file and tls.server_name":                                                             otherName,
		"resolve no-such-host.invalid: ": {URL: secret.New("https://no-such-host.invalid" + path)},
	} {
		s := newSink(t, c)
		_, err := check(t, s)
		require.ErrorContains(t, err, want)
		require.Error(t, s.Deliver(t.Context(), relaytest.Events(1)))
	}
	// The certificate of httptest is for example.com too.
	named := trusted
	named.TLS = &config.TLSClient{CAFile: trusted.TLS.CAFile, ServerName: "example.com"}
	found, err := check(t, newSink(t, named))
	require.NoError(t, err)
	assert.Contains(t, found["certificate"], "for example.com, valid until")
}

// In TLS 1.3 a receiver refuses a missing certificate after the handshake.
func TestCheckFindsAMissingClientCertificate(t *testing.T) {
	t.Parallel()
	r := newReceiver(t, true)
	pair := r.server.TLS.Certificates[0]
	listener, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{
		Certificates: []tls.Certificate{pair}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: x509.NewCertPool(),
	})
	require.NoError(t, err)
	server := &http.Server{ReadHeaderTimeout: time.Minute, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, 0)}
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(func() { _ = server.Close() })
	c := r.config(t)
	c.URL = secret.New("https://" + listener.Addr().String() + path)
	_, err = check(t, newSink(t, c))
	require.ErrorContains(t, err, "closed the connection after the handshake: remote error: tls: certificate required; check tls.cert_file")
}

// The check of a silent receiver ends with the context.
func TestCheckOfASilentReceiver(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	s := newSink(t, config.Webhook{URL: secret.New("https://" + listener.Addr().String() + path)})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() {
		conn, err := listener.Accept()
		if !assert.NoError(t, err) {
			return
		}
		defer func() { _ = conn.Close() }()
		_, err = conn.Read(make([]byte, 1)) // the handshake has begun
		assert.NoError(t, err)
		cancel()
		_, _ = io.Copy(io.Discard, conn) // until the sink has gone
	}()
	require.ErrorContains(t, s.Check(ctx, func(string, string) {}), "shake hands")
}
