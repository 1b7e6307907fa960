package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"os"
	"sync/atomic"
	"time"
)

// tlsReceiver takes webhooks over TLS, with a certificate that it can replace.
type tlsReceiver struct {
	url      string
	caFile   string // the certificate, as the sink knows it
	now      atomic.Pointer[tls.Certificate]
	requests atomic.Uint64
	renewals int
	server   *http.Server
}

func newTLSReceiver(ctx context.Context, caFile string) (*tlsReceiver, error) {
	r := &tlsReceiver{caFile: caFile}
	if err := r.renew(); err != nil {
		return nil, err
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	r.url = "https://" + listener.Addr().String() + "/"
	// A sink that does not know a new certificate yet is no news.
	r.server = &http.Server{Handler: r, ReadHeaderTimeout: 10 * time.Second, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError), TLSConfig: &tls.Config{
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return r.now.Load(), nil },
	}}
	go func() { _ = r.server.ServeTLS(listener, "", "") }() // ends at close
	return r, nil
}

func (r *tlsReceiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	_, _ = io.Copy(io.Discard, req.Body)
	w.Header().Set("Connection", "close") // so that each delivery sees the certificate
	r.requests.Add(1)
}

// renew shows another certificate from now on, and writes it to the file.
func (r *tlsReceiver) renew() error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return err
	}
	r.now.Store(&tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key})
	return os.WriteFile(r.caFile, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600)
}

func (r *tlsReceiver) close() { _ = r.server.Close() }
