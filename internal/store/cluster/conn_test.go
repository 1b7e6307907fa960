package cluster

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"log/slog"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/internal/testbed/natstest"
)

// writeAuthority writes a certificate to file, and returns a pool of it.
func writeAuthority(t *testing.T, file string, modified time.Time) *x509.CertPool {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(modified.Unix()), NotAfter: modified.Add(time.Hour), IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	require.NoError(t, err)
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	require.NoError(t, os.WriteFile(file, text, 0o600))
	require.NoError(t, os.Chtimes(file, modified, modified))
	pool := x509.NewCertPool()
	require.True(t, pool.AppendCertsFromPEM(text))
	return pool
}

// Each connection trusts the authorities that are in the file then.
func TestTheAuthoritiesOfTheServersAreFollowed(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "ca.crt")
	first := writeAuthority(t, file, time.Now().Add(-time.Minute))
	options, err := dialOptions(t.Context(), config.Journal{URL: "tls://127.0.0.1:4222", TLS: &config.TLSClient{CAFile: file}})
	require.NoError(t, err)
	var all nats.Options
	for _, option := range options {
		require.NoError(t, option(&all))
	}
	got, err := all.RootCAsCB()
	require.NoError(t, err)
	assert.True(t, first.Equal(got))
	second := writeAuthority(t, file, time.Now())
	got, err = all.RootCAsCB()
	require.NoError(t, err)
	assert.True(t, second.Equal(got))
}

// A server that announces a length without memory for it ends the connection, not the process.
func TestAServerThatLiesAboutLengths(t *testing.T) {
	t.Parallel()
	told := make(lines, 100)
	js, err := dial(t.Context(), config.Journal{URL: "nats://" + natstest.Lying(t, "MSG x 1 9223372036854775807\r\n")}, slog.New(slog.NewTextHandler(told, nil)))
	require.NoError(t, err)
	defer js.Conn().Close()
	require.NoError(t, js.Conn().Publish("x", nil))
	for !strings.Contains(<-told, "it is no NATS server") {
	}
}

// lines are those of a log. What nobody waits for is left out.
type lines chan string

func (l lines) Write(line []byte) (int, error) {
	select {
	case l <- string(line):
	default:
	}
	return len(line), nil
}
