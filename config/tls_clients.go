package config

import (
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"sync"
)

// askClients makes a server's configuration ask each client for a certificate that is signed by
// one of the file's authorities. The file is read again when it changes.
func askClients(base *tls.Config, file string, how tls.ClientAuthType) error {
	authorities, err := followRoots(file)
	if err != nil {
		return err
	}
	base.ClientAuth = how
	// A resumed session would be accepted even if its authority was removed meanwhile.
	base.SessionTicketsDisabled = true
	served := base.Clone()
	base.ClientCAs = authorities.now()
	base.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
		c := served.Clone()
		c.ClientCAs = authorities.now()
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
	authorities, err := followRoots(t.CAFile)
	if err != nil {
		return nil, err
	}
	return authorities.now, nil
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
