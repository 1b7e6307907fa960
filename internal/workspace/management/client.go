// Package management is a client of the Workspace Management API: its fourteen operations, and
// the creation of a project.
//
// Every answer carries the resource's JSON, so that no unknown field is lost and unknown values
// pass through. Only a streaming config is decoded too. No secret leaves the package: it redacts
// answers, and removes from errors the secrets that it sent.
package management

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/config/secret"
)

// Options configure a client. Zero values take the defaults.
type Options struct {
	// BaseURL comes before each path. It is https, except on loopback.
	BaseURL string
	// KeyID and Secret are a workspace management key (HTTP Basic).
	KeyID  string
	Secret secret.Text
	// Projects are those of the calls. A failure counts as one of the whole API only where none
	// of several can be read. The calls' own projects need not be named.
	Projects []string
	// RequestsPerSecond bounds the attempts of all calls together. Default 5.
	RequestsPerSecond float64
	// AtOnce bounds the requests under way at once. Default 8.
	AtOnce int
	// Timeout bounds one attempt of one call. Default 30s.
	Timeout time.Duration
	// MaxAttempts bounds the attempts of a repeatable call. Default 5.
	MaxAttempts int
	// Patient repeats calls that are answered 429 for as long as their context lasts.
	Patient bool
	// MaxAnswerBytes bounds an answer's body after decompression. Default 16MiB.
	MaxAnswerBytes int64
	// Permit, where set, is asked before each request: it waits until this process may send one, or
	// returns why it may not. Of several relays, only one changes the workspace.
	Permit func(context.Context) error
	// HTTPClient sends the requests. New replaces its redirect policy.
	HTTPClient *http.Client
	// Registerer takes the client's metrics; nil keeps them unregistered.
	Registerer prometheus.Registerer
}

// Client calls the API. Many goroutines may use it.
type Client struct {
	options Options // with the defaults
	base    string
	http    *http.Client
	queue   *queue
	class   int // of this client's calls
	breaker *breaker
	metrics *metrics
	scrub   *scrubber // knows the client's own secret
}

// defaultAtOnce reaches 20 requests a second where each takes 0.4 s.
const defaultAtOnce = 8

// GivingWay returns a client like c, of the same rate and state, whose calls wait for
// those of c.
func (c *Client) GivingWay() *Client {
	other := *c
	other.class = patient
	return &other
}

// New checks the options and returns a client. It sends nothing yet.
//
// The client follows redirects for GET only, and only to the same scheme and host:
// credentials and bodies go nowhere else, and a PUT never turns into a GET.
func New(o Options) (*Client, error) {
	base, err := parseBase(o.BaseURL)
	if err != nil {
		return nil, err
	}
	if o.KeyID == "" || o.Secret.Empty() || strings.Contains(o.KeyID, ":") {
		return nil, errors.New("a management key needs an id without a colon, and a secret")
	}
	if o.RequestsPerSecond < 0 || o.AtOnce < 0 || o.Timeout < 0 || o.MaxAttempts < 0 || o.MaxAnswerBytes < 0 {
		return nil, errors.New("limits of the management client must not be negative")
	}
	o.AtOnce, o.RequestsPerSecond = cmp.Or(o.AtOnce, defaultAtOnce), cmp.Or(o.RequestsPerSecond, 5)
	o.Timeout, o.MaxAttempts, o.MaxAnswerBytes = cmp.Or(o.Timeout, 30*time.Second), cmp.Or(o.MaxAttempts, 5), cmp.Or(o.MaxAnswerBytes, 16<<20)
	b, q := newBreaker(o.Projects), newQueue(o.RequestsPerSecond, o.AtOnce)
	return &Client{
		options: o, base: base, http: httpClient(o.HTTPClient, o.AtOnce), queue: q, breaker: b,
		metrics: newMetrics(o.Registerer, b, q), scrub: newScrubber(ownSecrets(o.KeyID, o.Secret)...),
	}, nil
}

// parseBase checks the base address. Its errors do not show the address, as a mistaken
// one may hold a password.
func parseBase(s string) (string, error) {
	u, err := url.Parse(s)
	switch {
	case err != nil || u.Host == "" || u.Opaque != "":
		return "", errors.New("base_url is not an absolute address")
	case u.User != nil:
		return "", errors.New("base_url must not carry credentials")
	case u.RawQuery != "" || u.Fragment != "":
		return "", errors.New("base_url must not have a query or a fragment")
	case u.Scheme == "https", u.Scheme == "http" && config.IsLoopback(u.Hostname()):
		return strings.TrimRight(u.String(), "/"), nil
	}
	return "", fmt.Errorf("base_url has scheme %q: https is required, except on loopback", u.Scheme)
}

// httpClient copies the given client and sets its redirect policy.
func httpClient(given *http.Client, atOnce int) *http.Client {
	var c http.Client
	if given != nil {
		c = *given
	} else if t, ok := http.DefaultTransport.(*http.Transport); ok {
		own := t.Clone()
		own.MaxIdleConnsPerHost = atOnce // otherwise two are kept, and each further request needs a new handshake
		c.Transport = own
	}
	c.CheckRedirect = sameHostOnly
	return &c
}

// sameHostOnly refuses a redirect by returning it: the caller sees an [APIError] with its
// 3xx status.
func sameHostOnly(req *http.Request, via []*http.Request) error {
	from := via[0]
	if from.Method != http.MethodGet || len(via) > 3 ||
		req.URL.Scheme != from.URL.Scheme || req.URL.Host != from.URL.Host {
		return http.ErrUseLastResponse
	}
	return nil
}
