package config

import (
	"crypto/x509"
	"fmt"
	"net"
	"reflect"
	"strings"
	"time"
)

// ExpiresSoon is how long before its end a certificate counts as one that has to be renewed.
const ExpiresSoon = 14 * 24 * time.Hour

// Certificate reads the certificate in the files again. The error says why it cannot be served:
// its key does not fit, or it is not valid now. Errors name the files.
func (t *TLSServer) Certificate() (*x509.Certificate, error) {
	leaf, err := leafOf(t.CertFile, t.KeyFile)
	if err == nil && t.ClientCAFile != "" {
		_, err = readRoots(t.ClientCAFile)
	}
	return leaf, err
}

// Certificate reads the client certificate in the files again, as that of a [TLSServer].
func (t *TLSClient) Certificate() (*x509.Certificate, error) { return leafOf(t.CertFile, t.KeyFile) }

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
	eachFile(reflect.ValueOf(c), "", func(field, file string) {
		if strings.HasSuffix(field, "ca_file") && readable(file) == nil {
			if _, err := readRoots(file); err != nil {
				f.bad(field, file, "holds no PEM certificate; put the authorities' certificates there")
			}
		}
	})
	eachPair(reflect.ValueOf(c), "", func(at, certFile, keyFile string) {
		if certFile == "" || keyFile == "" || readable(certFile) != nil || readable(keyFile) != nil {
			return // reported elsewhere
		}
		field := join(at, "cert_file")
		leaf, err := leafOf(certFile, keyFile)
		switch {
		case err != nil:
			f.bad(field, nil, err.Error())
		case time.Until(leaf.NotAfter) < ExpiresSoon:
			f.k.warn(field, fmt.Sprintf("the certificate %s expires on %s; renew it before", certFile, leaf.NotAfter.UTC().Format("2006-01-02 15:04 UTC")))
		}
		if err == nil && at == "ingest.tls" {
			f.names(field, certFile, leaf, c.Environments)
		}
	})
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

// eachPair calls visit for each section with a certificate.
func eachPair(v reflect.Value, at string, visit func(at, certFile, keyFile string)) {
	switch v.Type() {
	case reflect.TypeFor[TLSServer](), reflect.TypeFor[TLSClient]():
		visit(at, v.FieldByName("CertFile").String(), v.FieldByName("KeyFile").String())
		return
	}
	eachField(v, at, func(v reflect.Value, at string) { eachPair(v, at, visit) })
}
