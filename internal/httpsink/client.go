// Package httpsink is what the sinks that post by HTTP have in common: a client that ends with its
// sink and takes credentials nowhere else, and the answers as errors of a delivery. It knows no
// destination: which answers acknowledge, and which refuse an event for good, each sink decides.
package httpsink

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/config/secret"
)

// Options are what a client is made from.
type Options struct {
	// Target is where requests go.
	Target *url.URL
	TLS    *config.TLSClient
	// Hide takes the credentials out of a peer's text, which may repeat them.
	Hide *strings.Replacer
	// Credential and Address say which settings to check if the destination does not accept the
	// credential, or does not know the address.
	Credential, Address string
	// HTTP1 keeps to HTTP/1, where a request that is cancelled is not sent any further.
	HTTP1 bool
}

// Client sends the requests of one sink. It may be used concurrently.
type Client struct {
	*http.Client
	Options

	closing context.Context // ends at Close
	end     context.CancelFunc
}

// ErrClosed is the error of a request after Close.
var ErrClosed = errors.New("the sink is closed")

// The time limits besides that of a request's context.
const (
	connectTimeout = 10 * time.Second
	idleTimeout    = 90 * time.Second
	pingAfter      = 15 * time.Second // of silence on an HTTP/2 connection
	pingTimeout    = 10 * time.Second
)

// UserAgent names the relay in each request that does not name another.
const UserAgent = "auditrelay"

// maxHeader keeps a peer from filling the memory.
const maxHeader = 64 << 10

// New makes a client. It connects to nothing. Errors name the setting, and no secret.
func New(o Options) (*Client, error) {
	if _, err := http.ProxyFromEnvironment(&http.Request{URL: o.Target}); err != nil {
		return nil, errors.New("the proxy in HTTPS_PROXY or HTTP_PROXY is not an address") // it may hold a password
	}
	transport, err := o.TLS.Transport(&http.Transport{
		Proxy:                  http.ProxyFromEnvironment,
		DialContext:            (&net.Dialer{Timeout: connectTimeout}).DialContext,
		TLSHandshakeTimeout:    connectTimeout,
		ForceAttemptHTTP2:      !o.HTTP1,
		HTTP2:                  &http.HTTP2Config{SendPingTimeout: pingAfter, PingTimeout: pingTimeout},
		DisableCompression:     true, // no answer grows in the unpacking
		IdleConnTimeout:        idleTimeout,
		MaxIdleConnsPerHost:    8,
		MaxResponseHeaderBytes: maxHeader,
	})
	if err != nil {
		return nil, fmt.Errorf("tls: %w", err)
	}
	c := &Client{Options: o, Client: &http.Client{
		Transport: transport,
		// A redirect's target would get the events and the credentials.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
	c.closing, c.end = context.WithCancel(context.Background())
	return c, nil
}

// Until returns a context that ctx and Close end.
func (c *Client) Until(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	if c.closing.Err() != nil {
		cancel(ErrClosed) // at once, because AfterFunc does it in a goroutine of its own
	}
	stop := context.AfterFunc(c.closing, func() { cancel(ErrClosed) })
	return ctx, func() {
		stop()
		cancel(nil)
	}
}

// Close ends the contexts of Until, and closes the connections.
func (c *Client) Close() {
	c.end()
	c.CloseIdleConnections()
}

// Do sends a request, with a context of Until. An error means that there is no answer: what was
// sent may have arrived. The transport itself sends a request again only if the peer read none of
// it, as on a connection that was closed while idle.
func (c *Client) Do(r *http.Request) (*Answer, error) {
	if r.Header.Get("User-Agent") == "" {
		r.Header.Set("User-Agent", UserAgent)
	}
	res, err := c.Client.Do(r)
	if err != nil {
		return nil, c.unanswered(r, err)
	}
	defer func() { _ = res.Body.Close() }() // it is only read
	return c.read(res, r.URL.Host), nil
}

func (c *Client) unanswered(r *http.Request, err error) error {
	var wrapped *url.Error // it repeats the whole address
	if errors.As(err, &wrapped) {
		err = wrapped.Err
	}
	if cause := context.Cause(r.Context()); cause != nil {
		err = cause
	}
	return fmt.Errorf("post to %s: %w", r.URL.Host, c.Clean(err))
}

// Clean returns err, or, if its text contains a credential, an error without the credential and
// without the chain.
func (c *Client) Clean(err error) error { return secret.HideInError(c.Hide, err) }
