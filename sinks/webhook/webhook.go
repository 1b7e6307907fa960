// Package webhook delivers events by HTTPS POST. Each request contains a batch, as
// [Options.Format] says, and is signed according to Standard Webhooks 1.0.0; [Verify] is for
// receivers written in Go.
//
// The sink never follows a redirect. Its URL is a secret, since receivers put credentials into
// it.
package webhook

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/relay"
)

// Sink posts to one address. It implements relay.Sink and relay.Checker; its methods may be
// called concurrently.
//
// Any 2xx acknowledges the whole batch, whatever its body says. 400, 413 and 422 are permanent:
// the pump finds the refused events, and a batch that is too large arrives in smaller ones.
// Everything else is tried again, after Retry-After if the answer has one. That includes 401,
// 403, 404, 410 and 415, since correcting the configuration or the receiver cures them, and
// redirects, since they are not followed.
//
// The header webhook-id is made from the events' sources, ids and bodies: an equal batch has an
// equal id, so that a receiver can recognise a redelivery. After a restart events may come
// again in other batches, so only each event's own source and id identify it with certainty.
type Sink struct {
	target  *url.URL
	key     []byte      // nil if requests are not signed
	headers http.Header // are sent with each request
	encode  func(events []relay.Event) ([]byte, error)
	client  *http.Client
	tls     *tls.Config // nil for the default
	clean   cleaner

	ended context.Context // ends at Close
	end   context.CancelFunc
}

// The limits of the header keep a receiver from filling the memory.
const (
	maxAnswerHeader = 64 << 10
	idleTimeout     = 90 * time.Second
)

var errClosed = errors.New("the sink is closed")

// Options are what a sink is given besides its section; all may be left out.
type Options struct {
	// Format is the format of config.Sink: the form of a request's body. The default is
	// [config.FormatCloudEvents].
	Format string
}

// New makes a sink from a complete section (see config.Sink.Complete). It connects to nothing;
// its errors name the setting that is wrong, and no secret.
func New(cfg config.Webhook, opts Options) (*Sink, error) {
	target, err := url.Parse(cfg.URL.Reveal())
	if err != nil {
		return nil, errors.New("url: it is not an address") // the error may hold a credential
	}
	form, known := forms[cmp.Or(opts.Format, config.FormatCloudEvents)]
	if !known {
		return nil, fmt.Errorf("format: %q is not one of cloudevents, ocsf and slack", opts.Format)
	}
	key, err := keyOf(cfg.Secret)
	if err != nil {
		return nil, err
	}
	tlsConfig, err := cfg.TLS.ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("tls: %w", err)
	}
	if _, err := http.ProxyFromEnvironment(&http.Request{URL: target}); err != nil {
		return nil, errors.New("the proxy in HTTPS_PROXY or HTTP_PROXY is not an address") // it may hold a password
	}
	s := &Sink{
		target:  target,
		key:     key,
		headers: headersOf(cfg.Headers, form.contentType),
		encode:  form.encode,
		tls:     tlsConfig,
		clean:   newCleaner(cfg, target),
		client: &http.Client{
			// A redirect's target would get the events and the credentials.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
			Transport: &http.Transport{
				Proxy:                  http.ProxyFromEnvironment,
				TLSClientConfig:        tlsConfig.Clone(), // it adds its protocols
				ForceAttemptHTTP2:      true,
				DisableCompression:     true, // no answer grows in the unpacking
				MaxResponseHeaderBytes: maxAnswerHeader,
				IdleConnTimeout:        idleTimeout,
			},
		},
	}
	s.ended, s.end = context.WithCancel(context.Background())
	return s, nil
}

// Deliver implements relay.Sink.
func (s *Sink) Deliver(ctx context.Context, events []relay.Event) error {
	if s.ended.Err() != nil {
		return errClosed
	}
	if err := ctx.Err(); err != nil || len(events) == 0 {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.ended, cancel)()
	// The transport sends a request again only if the receiver read none of it, as on a
	// connection closed while idle.
	req, err := s.request(ctx, events, time.Now())
	if relay.IsPermanent(err) {
		return err // of the form: its class must stay
	}
	if err != nil {
		return fmt.Errorf("make the request: %w", s.clean.error(err))
	}
	resp, err := s.client.Do(req)
	if err != nil {
		return s.unanswered(err)
	}
	defer func() { _ = resp.Body.Close() }() // was only read
	return s.answered(resp)
}

// unanswered is the error of a delivery without an answer: it may have arrived, and is
// tried again.
func (s *Sink) unanswered(err error) error {
	if s.ended.Err() != nil {
		return errClosed
	}
	var u *url.Error
	if errors.As(err, &u) {
		err = u.Err // without the address
	}
	return fmt.Errorf("post to %s: %w", s.target.Host, s.clean.error(err))
}

// Close implements relay.Sink. A delivery under way ends with an error.
func (s *Sink) Close() error {
	s.end()
	s.client.CloseIdleConnections()
	return nil
}
