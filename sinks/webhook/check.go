package webhook

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"
)

const (
	// A certificate is mentioned if it ends within renewal.
	renewal = 21 * 24 * time.Hour
	// refusalTime is how long to wait for a receiver to refuse our certificate: in TLS 1.3 it
	// does so only after the handshake has succeeded on this side.
	refusalTime = 300 * time.Millisecond
)

// Check implements relay.Checker. It resolves, connects and shakes hands, but makes no request,
// since a receiver may take any request for an event. So the path of the address, the headers
// and the secret are first tried by a delivery.
func (s *Sink) Check(ctx context.Context, report func(what, found string)) error {
	proxy, err := http.ProxyFromEnvironment(&http.Request{URL: s.target})
	if err != nil {
		return errors.New("the proxy in HTTPS_PROXY or HTTP_PROXY is not an address")
	}
	if proxy != nil {
		report("proxy", proxy.Host+"; it was not checked whether the receiver can be reached through it")
		conn, err := s.connect(ctx, proxy, report)
		if err == nil {
			_ = conn.Close() // nothing was written
		}
		return err
	}
	conn, err := s.connect(ctx, s.target, report)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }() // nothing was written
	if s.target.Scheme == "https" {
		if err := s.shakeHands(ctx, conn, report); err != nil {
			return err
		}
	}
	report("path, headers and secret", "not tried, as this takes a request; the first delivery does")
	return nil
}

func (s *Sink) connect(ctx context.Context, to *url.URL, report func(what, found string)) (net.Conn, error) {
	addresses, err := net.DefaultResolver.LookupHost(ctx, to.Hostname())
	if err != nil {
		return nil, fmt.Errorf("resolve %s: %w; check the host in url", to.Hostname(), err)
	}
	report("addresses of "+to.Hostname(), strings.Join(addresses, ", "))
	port := cmp.Or(to.Port(), map[string]string{"http": "80", "https": "443"}[to.Scheme])
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", net.JoinHostPort(to.Hostname(), port))
	if err != nil {
		return nil, fmt.Errorf("connect: %w; check url, and any firewall or proxy between", err)
	}
	report("connection", "to "+conn.RemoteAddr().String())
	return conn, nil
}

func (s *Sink) shakeHands(ctx context.Context, conn net.Conn, report func(what, found string)) error {
	config, err := s.tlsConfig()
	if err != nil {
		return fmt.Errorf("tls: %w", err)
	}
	client := tls.Client(conn, config)
	if err := client.HandshakeContext(ctx); err != nil {
		return fmt.Errorf("shake hands with %s: %w; check tls.ca_file and tls.server_name", s.target.Host, err)
	}
	state := client.ConnectionState()
	report("encryption", tls.VersionName(state.Version))
	leaf := state.PeerCertificates[0]
	found := fmt.Sprintf("for %s, valid until %s", config.ServerName, leaf.NotAfter.UTC().Format(time.DateOnly))
	if left := time.Until(leaf.NotAfter); left < renewal {
		found += fmt.Sprintf(": it ends in %d days, have it renewed", int(left.Hours()/24))
	}
	report("certificate", found)

	_ = client.SetReadDeadline(time.Now().Add(refusalTime)) // if it fails, so does Read
	if _, err := client.Read(make([]byte, 1)); err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		return fmt.Errorf("%s closed the connection after the handshake: %w; check tls.cert_file and tls.key_file", s.target.Host, err)
	}
	return nil
}

// tlsConfig returns a TLS configuration like that of the transport.
func (s *Sink) tlsConfig() (*tls.Config, error) {
	c, err := s.tls.ClientConfig()
	if err != nil {
		return nil, err
	}
	if c == nil {
		c = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	c.ServerName = cmp.Or(c.ServerName, s.target.Hostname())
	c.NextProtos = []string{"h2", "http/1.1"}
	return c, nil
}
