package config

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"
)

// ClientConfig returns the configuration of a TLS client, with TLS 1.2 or later. The client
// certificate is read again when its files change; the CA file is read once, here. If t is nil,
// so is the result, which means the caller's default. Errors name the file.
func (t *TLSClient) ClientConfig() (*tls.Config, error) {
	if t == nil {
		return nil, nil
	}
	c := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: t.ServerName}
	if t.CAFile != "" {
		roots, err := readRoots(t.CAFile)
		if err != nil {
			return nil, err
		}
		c.RootCAs = roots
	}
	if t.CertFile == "" && t.KeyFile == "" {
		return c, nil
	}
	pair, err := newKeyPair(t.CertFile, t.KeyFile)
	if err != nil {
		return nil, err
	}
	c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
		return pair.certificate(), nil
	}
	return c, nil
}

// ClientTLS returns the TLS section of the sink's destination, or nil.
func (s *Sink) ClientTLS() *TLSClient {
	switch {
	case s.Kafka != nil:
		return s.Kafka.TLS
	case s.NATS != nil:
		return s.NATS.TLS
	case s.Loki != nil:
		return s.Loki.TLS
	case s.Datadog != nil:
		return s.Datadog.TLS
	case s.Webhook != nil:
		return s.Webhook.TLS
	}
	return nil
}

// ServerConfig returns the configuration of a TLS server, with TLS 1.2 or later. The
// certificate and the clients' authorities are read again when their files change. If t is nil,
// so is the result, which means no TLS. Errors name the file.
func (t *TLSServer) ServerConfig() (*tls.Config, error) {
	if t == nil {
		return nil, nil
	}
	pair, err := newKeyPair(t.CertFile, t.KeyFile)
	if err != nil {
		return nil, err
	}
	c := &tls.Config{
		MinVersion: tls.VersionTLS12,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			return pair.certificate(), nil
		},
	}
	if t.ClientCAFile != "" {
		err = askClients(c, t.ClientCAFile, tls.RequireAndVerifyClientCert)
	}
	return c, err
}

func readRoots(file string) (*x509.CertPool, error) {
	pem, err := readRegular(file, maxNamed)
	if err != nil {
		return nil, fmt.Errorf("read CA file: %w", err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("read CA file %s: it holds no PEM certificate", file)
	}
	return roots, nil
}

// keyPair is a certificate and its key, in files that may be replaced.
type keyPair struct {
	certFile, keyFile string

	mu      sync.Mutex
	current *tls.Certificate // never nil after newKeyPair; guarded by mu
	seen    [2]fileState     // the files of current, or later ones that could not be loaded; guarded by mu
}

// fileState tells whether a file was replaced.
type fileState struct {
	modified time.Time
	size     int64
}

func newKeyPair(certFile, keyFile string) (*keyPair, error) {
	if certFile == "" || keyFile == "" {
		return nil, errors.New("a certificate needs both cert_file and key_file")
	}
	p := &keyPair{certFile: certFile, keyFile: keyFile}
	seen, err := p.states()
	if err != nil {
		return nil, err
	}
	if err := p.load(seen); err != nil {
		return nil, err
	}
	return p, nil
}

// certificate returns the newest good pair. Two files cannot be replaced in one step, so a pair
// that does not match counts as one that is being replaced, and the previous pair is served
// meanwhile.
func (p *keyPair) certificate() *tls.Certificate {
	p.mu.Lock()
	defer p.mu.Unlock()
	if seen, err := p.states(); err == nil && seen != p.seen {
		_ = p.load(seen)
	}
	return p.current
}

func (p *keyPair) states() (states [2]fileState, err error) {
	for i, file := range []string{p.certFile, p.keyFile} {
		info, err := os.Stat(file)
		if err != nil {
			return states, fmt.Errorf("look at certificate: %w", err)
		}
		states[i] = fileState{info.ModTime(), info.Size()}
	}
	return states, nil
}

func (p *keyPair) load(seen [2]fileState) error {
	p.seen = seen
	cert, err := readKeyPair(p.certFile, p.keyFile)
	if err != nil {
		return fmt.Errorf("load certificate %s with key %s: %w", p.certFile, p.keyFile, err)
	}
	p.current = &cert
	return nil
}

func readKeyPair(certFile, keyFile string) (tls.Certificate, error) {
	cert, err := readRegular(certFile, maxNamed)
	if err != nil {
		return tls.Certificate{}, err
	}
	key, err := readRegular(keyFile, maxNamed)
	if err != nil {
		return tls.Certificate{}, err
	}
	return tls.X509KeyPair(cert, key)
}
