package datadog

import (
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"time"
)

// The time limits of a request, besides the context of a delivery.
const (
	requestTimeout   = time.Minute
	connectTimeout   = 10 * time.Second
	handshakeTimeout = 10 * time.Second
	idleTimeout      = 90 * time.Second
	pingAfter        = 15 * time.Second // of silence on an HTTP/2 connection
	pingTimeout      = 10 * time.Second
)

// The bounds of an answer, of which the client reads everything.
const (
	maxAnswer  = 64 << 10
	maxHeaders = 64 << 10
)

// newHTTPClient makes a client that follows no redirects, since the key would be sent along to
// any host that an answer names. The proxy is that of the environment.
func newHTTPClient(config *tls.Config) *http.Client {
	return &http.Client{
		Timeout:       requestTimeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport: bounded{&http.Transport{
			Proxy:                  http.ProxyFromEnvironment,
			DialContext:            (&net.Dialer{Timeout: connectTimeout}).DialContext,
			TLSClientConfig:        config,
			TLSHandshakeTimeout:    handshakeTimeout,
			ForceAttemptHTTP2:      true,
			HTTP2:                  &http.HTTP2Config{SendPingTimeout: pingAfter, PingTimeout: pingTimeout},
			IdleConnTimeout:        idleTimeout,
			MaxIdleConnsPerHost:    8,
			MaxResponseHeaderBytes: maxHeaders,
		}},
	}
}

// bounded cuts answers off at maxAnswer.
type bounded struct{ *http.Transport }

// RoundTrip implements http.RoundTripper.
func (b bounded) RoundTrip(r *http.Request) (*http.Response, error) {
	res, err := b.Transport.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	res.Body = struct {
		io.Reader
		io.Closer
	}{io.LimitReader(res.Body, maxAnswer), res.Body}
	return res, nil
}
