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
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/config/secret"
	"github.com/auditrelay/auditrelay/internal/httpsink"
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
	tls     *config.TLSClient
	key     []byte      // nil if requests are not signed
	headers http.Header // are sent with each request
	encode  func(events []relay.Event) ([]byte, error)
	client  *httpsink.Client
}

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
	client, err := httpsink.New(httpsink.Options{
		Target: target, TLS: cfg.TLS, Hide: hiding(cfg, target),
		Credential: "check the secret and the headers", Address: "check the url",
	})
	if err != nil {
		return nil, err
	}
	return &Sink{
		target: target, tls: cfg.TLS, key: key, headers: headersOf(cfg.Headers, form.contentType), encode: form.encode, client: client,
	}, nil
}

// Deliver implements relay.Sink.
func (s *Sink) Deliver(ctx context.Context, events []relay.Event) error {
	ctx, cancel := s.client.Until(ctx)
	defer cancel()
	if err := context.Cause(ctx); err != nil || len(events) == 0 {
		return err
	}
	req, err := s.request(ctx, events, time.Now())
	if err != nil {
		return err
	}
	answer, err := s.client.Do(req)
	if err != nil {
		return err
	}
	return judge(answer)
}

// judge classifies an answer.
func judge(a *httpsink.Answer) error {
	if a.Status/100 == 2 {
		return nil
	}
	remedy := ""
	if a.Status == http.StatusUnsupportedMediaType {
		remedy = "it does not take " + ContentType + "; headers may set another Content-Type"
	}
	err := a.Err(a.Text, remedy)
	switch a.Status {
	case http.StatusBadRequest, http.StatusRequestEntityTooLarge, http.StatusUnprocessableEntity:
		return relay.Permanent(err)
	case http.StatusUnauthorized, http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusGone, http.StatusUnsupportedMediaType:
		return err // whatever the event is
	}
	if _, waits := relay.RetryDelay(err); waits || a.Status/100 == 3 {
		return err
	}
	return relay.Suspect(err) // even with a 403, since a firewall before the receiver may refuse one event
}

// Close implements relay.Sink. A delivery under way ends with an error.
func (s *Sink) Close() error {
	s.client.Close()
	return nil
}

// The least lengths of a secret's text to search for. A shorter one may be an everyday word, above
// all among the parts of an address such as "/hooks/events".
const (
	shortestSecret  = 4
	shortestSegment = 16
)

// hiding takes the sink's secrets out of the text of a receiver, which may echo a header or the
// address.
func hiding(cfg config.Webhook, target *url.URL) *strings.Replacer {
	texts := []string{
		cfg.Secret.Reveal(), strings.TrimPrefix(cfg.Secret.Reveal(), "whsec_"),
		target.String(), target.RequestURI(), target.EscapedPath(), target.Path,
	}
	for _, value := range cfg.Headers {
		texts = append(append(texts, value.Reveal()), strings.Fields(value.Reveal())...) // "Bearer" and the token
	}
	for _, values := range target.Query() {
		texts = append(texts, values...)
	}
	for segment := range strings.SplitSeq(target.Path, "/") {
		if len(segment) >= shortestSegment {
			texts = append(texts, segment)
		}
	}
	return secret.Hide(shortestSecret, texts...)
}
