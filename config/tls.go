package config

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"reflect"
	"slices"
	"strings"
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
	pair, err := followPair(t.CertFile, t.KeyFile)
	if err != nil {
		return nil, err
	}
	c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
		return pair.now(), nil
	}
	return c, nil
}

// ServerConfig returns the configuration of a TLS server, with TLS 1.2 or later. The
// certificate and the clients' authorities are read again when their files change. If t is nil,
// so is the result, which means no TLS. Errors name the file.
func (t *TLSServer) ServerConfig() (*tls.Config, error) {
	if t == nil {
		return nil, nil
	}
	pair, err := followPair(t.CertFile, t.KeyFile)
	if err != nil {
		return nil, err
	}
	c := &tls.Config{
		MinVersion: tls.VersionTLS12,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			return pair.now(), nil
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

// followed is what some files hold. They are read again when one of them changes. Several files
// cannot be replaced in one step, so that faulty ones count as being replaced: what they held
// before counts meanwhile.
type followed[T any] struct {
	files []string
	read  func() (T, error)

	mu      sync.Mutex
	current T           // guarded by mu
	seen    []fileState // of the files of current, or of later ones that could not be used; guarded by mu
}

// fileState tells whether a file was replaced. It is zero if there is none.
type fileState struct {
	modified time.Time
	size     int64
}

func follow[T any](read func() (T, error), files ...string) (f *followed[T], err error) {
	f = &followed[T]{files: files, read: read, seen: statesOf(files)}
	f.current, err = read()
	return f, err
}

// now is what the files hold, or the last good content.
func (f *followed[T]) now() T {
	f.mu.Lock()
	defer f.mu.Unlock()
	if seen := statesOf(f.files); !slices.Equal(seen, f.seen) {
		f.seen = seen
		if found, err := f.read(); err == nil {
			f.current = found
		}
	}
	return f.current
}

func statesOf(files []string) []fileState {
	states := make([]fileState, len(files))
	for i, file := range files {
		if info, err := os.Stat(file); err == nil {
			states[i] = fileState{info.ModTime(), info.Size()}
		}
	}
	return states
}

// followPair follows a certificate and its key.
func followPair(certFile, keyFile string) (*followed[*tls.Certificate], error) {
	if certFile == "" || keyFile == "" {
		return nil, errors.New("a certificate needs both cert_file and key_file")
	}
	return follow(func() (*tls.Certificate, error) {
		pair, err := readKeyPair(certFile, keyFile)
		if err != nil {
			return nil, fmt.Errorf("load certificate %s with key %s: %w", certFile, keyFile, err)
		}
		return &pair, nil
	}, certFile, keyFile)
}

// followRoots follows a file of certificate authorities.
func followRoots(file string) (*followed[*x509.CertPool], error) {
	return follow(func() (*x509.CertPool, error) { return readRoots(file) }, file)
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

// ExpiresSoon is how long before its end a certificate counts as one that has to be renewed.
const ExpiresSoon = 14 * 24 * time.Hour

// TLSSection is a section with files for TLS; those that it does not name are empty.
type TLSSection struct {
	Path                      string // of the section, such as "ingest.tls"
	CertFile, KeyFile, CAFile string
}

// TLSSections are all sections with files for TLS, in the order of [Config].
func (c *Config) TLSSections() (all []TLSSection) {
	walk(reflect.ValueOf(c), "", "", func(v reflect.Value, at string, _ reflect.StructTag) bool {
		if !v.CanInterface() {
			return false
		}
		switch t := v.Interface().(type) {
		case TLSServer:
			all = append(all, TLSSection{at, t.CertFile, t.KeyFile, t.ClientCAFile})
		case TLSClient:
			all = append(all, TLSSection{at, t.CertFile, t.KeyFile, t.CAFile})
		case ConsoleCertificates:
			all = append(all, TLSSection{Path: at, CAFile: t.CAFile})
		}
		return true
	})
	return all
}

// Follow reads the files, and returns the certificate as it is used: it is read again when its files
// change, and nil if the section names none. Errors name the files.
func (t TLSSection) Follow() (used func() *tls.Certificate, err error) {
	if t.CAFile != "" {
		if _, err := readRoots(t.CAFile); err != nil {
			return nil, err
		}
	}
	if t.CertFile == "" && t.KeyFile == "" {
		return func() *tls.Certificate { return nil }, nil
	}
	pair, err := followPair(t.CertFile, t.KeyFile)
	if err != nil {
		return nil, err
	}
	return pair.now, nil
}

// Certificate reads the certificate in the files again. The error says why it cannot be used: its key
// does not fit, it is not valid now, or its authorities cannot be read. Errors name the files.
func (t TLSSection) Certificate() (*x509.Certificate, error) {
	leaf, err := leafOf(t.CertFile, t.KeyFile)
	if err == nil && t.CAFile != "" {
		_, err = readRoots(t.CAFile)
	}
	return leaf, err
}

func leafOf(certFile, keyFile string) (*x509.Certificate, error) {
	pair, err := readKeyPair(certFile, keyFile)
	if err != nil {
		return nil, fmt.Errorf("the certificate %s cannot be used with the key %s: %w; put a certificate there with the key it was made for", certFile, keyFile, err)
	}
	if fault := Fault(pair.Leaf, time.Now()); fault != "" {
		return pair.Leaf, fmt.Errorf("the certificate %s %s", certFile, fault)
	}
	return pair.Leaf, nil
}

// Fault says why a certificate is not valid at a time; it is empty if it is valid.
func Fault(leaf *x509.Certificate, now time.Time) string {
	day := func(t time.Time) string { return t.UTC().Format("2006-01-02 15:04 UTC") }
	switch {
	case leaf == nil:
		return ""
	case now.After(leaf.NotAfter):
		return fmt.Sprintf("expired on %s, so that peers refuse it: renew it", day(leaf.NotAfter))
	case now.Before(leaf.NotBefore):
		return fmt.Sprintf("is valid from %s on only, so that peers refuse it: correct this machine's clock, or wait", day(leaf.NotBefore))
	}
	return ""
}

// certificates examines the certificates, keys and authorities that a configuration names.
func (f files) certificates(c *Config) {
	eachFile(c, func(field, file string) {
		if strings.HasSuffix(field, "ca_file") && readable(file) == nil {
			if _, err := readRoots(file); err != nil {
				f.bad(field, file, "holds no PEM certificate; put the authorities' certificates there")
			}
		}
	})
	for _, t := range c.TLSSections() {
		if t.CertFile == "" || t.KeyFile == "" || readable(t.CertFile) != nil || readable(t.KeyFile) != nil {
			continue // reported elsewhere
		}
		field := t.Path + ".cert_file"
		leaf, err := leafOf(t.CertFile, t.KeyFile)
		switch {
		case err != nil:
			f.bad(field, nil, err.Error())
		case time.Until(leaf.NotAfter) < ExpiresSoon:
			f.k.warn(field, fmt.Sprintf("the certificate %s expires on %s; renew it before", t.CertFile, leaf.NotAfter.UTC().Format("2006-01-02 15:04 UTC")))
		}
		if err == nil && t.Path == "ingest.tls" {
			f.names(field, t.CertFile, leaf, c.Environments)
		}
	}
}

// names warns if the provider would refuse the certificate because of its name.
func (f files) names(field, certFile string, leaf *x509.Certificate, environments []Environment) {
	seen := map[string]bool{}
	for _, e := range environments {
		if e.Stream == nil || e.Stream.Relay == nil {
			continue
		}
		host := e.Stream.Relay.Hostname
		if name, _, err := net.SplitHostPort(host); err == nil {
			host = name
		}
		if seen[host] {
			continue
		}
		seen[host] = true
		if err := leaf.VerifyHostname(host); err != nil {
			f.k.warn(field, fmt.Sprintf("the certificate %s is not for %s, where environments push to: %v", certFile, shown(host), err))
		}
	}
}
