package config

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"reflect"
	"strings"
	"time"
)

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
