package config

import (
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"os"
	"sync"
)

// askClients makes a server's configuration ask each client for a certificate that is signed by
// one of the file's authorities. The file is read again when it changes.
func askClients(base *tls.Config, file string, how tls.ClientAuthType) error {
	authorities := &rootsFile{file: file}
	if err := authorities.load(); err != nil {
		return err
	}
	base.ClientAuth = how
	// A resumed session would be accepted even if its authority was removed meanwhile.
	base.SessionTicketsDisabled = true
	served := base.Clone()
	base.ClientCAs = authorities.pool()
	base.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
		c := served.Clone()
		c.ClientCAs = authorities.pool()
		return c, nil
	}
	return nil
}

// Authorities returns the authorities of CAFile as they are at each call, which is one that asks
// for them at each handshake; nil without a CAFile. Errors name the file.
func (t *TLSClient) Authorities() (func() *x509.CertPool, error) {
	if t == nil || t.CAFile == "" {
		return nil, nil
	}
	authorities := &rootsFile{file: t.CAFile}
	if err := authorities.load(); err != nil {
		return nil, err
	}
	return authorities.pool, nil
}

// Transport returns a transport like base, with the TLS of the section. Each new connection is made
// with the authorities and the client certificate that are in the files then, or with the last good
// ones. Once the authorities have changed, idle connections are not used any more. If t is nil, base
// is returned as it is. Errors name the file.
func (t *TLSClient) Transport(base *http.Transport) (http.RoundTripper, error) {
	tlsConfig, err := t.ClientConfig()
	if err != nil {
		return nil, err
	}
	if tlsConfig == nil {
		return base, nil
	}
	base.TLSClientConfig = tlsConfig
	authorities, err := t.Authorities()
	if err != nil || authorities == nil {
		return base, err
	}
	f := &following{authorities: authorities, pool: authorities(), now: base}
	tlsConfig.RootCAs = f.pool
	return f, nil
}

// following is a transport that is made again when its authorities have changed.
type following struct {
	authorities func() *x509.CertPool

	mu   sync.Mutex
	pool *x509.CertPool  // of now; guarded by mu
	now  *http.Transport // guarded by mu
}

// RoundTrip implements [http.RoundTripper].
func (f *following) RoundTrip(r *http.Request) (*http.Response, error) {
	return f.transport().RoundTrip(r)
}

func (f *following) transport() *http.Transport {
	f.mu.Lock()
	defer f.mu.Unlock()
	if pool := f.authorities(); pool != f.pool {
		before := f.now
		f.pool, f.now = pool, before.Clone()
		f.now.TLSClientConfig.RootCAs = pool
		before.CloseIdleConnections()
	}
	return f.now
}

// CloseIdleConnections is called by that of [http.Client].
func (f *following) CloseIdleConnections() { f.transport().CloseIdleConnections() }

// rootsFile is a file of certificate authorities that may be replaced.
type rootsFile struct {
	file string

	mu      sync.Mutex
	current *x509.CertPool // never nil after load; guarded by mu
	seen    fileState      // the file of current, or a later one that could not be loaded; guarded by mu
}

// pool returns the newest good authorities. A faulty file counts as one that is being replaced,
// and the previous authorities stay in force meanwhile.
func (r *rootsFile) pool() *x509.CertPool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if info, err := os.Stat(r.file); err == nil && (fileState{info.ModTime(), info.Size()}) != r.seen {
		_ = r.load()
	}
	return r.current
}

// load reads the file. The caller holds mu, or nobody else has r yet.
func (r *rootsFile) load() error {
	if info, err := os.Stat(r.file); err == nil {
		r.seen = fileState{info.ModTime(), info.Size()}
	}
	roots, err := readRoots(r.file)
	if err != nil {
		return err
	}
	r.current = roots
	return nil
}
