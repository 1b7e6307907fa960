// Package datadog delivers events to Datadog's logs intake, with Datadog's own
// client (datadogV2.LogsApi.SubmitLog).
//
// What an entry holds, and what becomes of events that the intake would cut or
// drop without a word, says package entry. Datadog keeps an event that is
// delivered twice as two logs; @ce.source and @ce.id tell.
//
// datadogV2 takes minutes to compile: no other package imports it.
package datadog

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/DataDog/datadog-api-client-go/v2/api/datadog"
	"github.com/DataDog/datadog-api-client-go/v2/api/datadogV2"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/relay"
	"github.com/auditrelay/auditrelay/sinks/datadog/entry"
)

// Options are what a sink takes from its surroundings.
type Options struct {
	// Now tells whether an event is still within what the intake takes. Default
	// time.Now.
	Now func() time.Time
}

// Sink delivers to one intake. It implements relay.Sink and relay.Checker.
//
// A delivery that is more than one request may hold is several, one after the
// other, so that the order is kept. Where the intake refuses a request for what
// is in it, halves of it are sent, down to the very entries that it does not
// take. Deliver may be called concurrently.
type Sink struct {
	target   target
	key      string
	client   *http.Client
	api      *datadogV2.LogsApi
	encoding datadogV2.SubmitLogOptionalParameters
	maker    *entry.Maker
	now      func() time.Time

	closing    context.Context // ends at Close
	startClose context.CancelFunc
}

var errClosed = errors.New("the sink is closed")

// New makes a sink. It connects to nothing: an intake that is down shows when
// something is delivered. Errors name the field of cfg, and no secret.
func New(cfg config.Datadog, opts Options) (*Sink, error) {
	s := &Sink{key: cfg.APIKey.Reveal(), now: opts.Now}
	if s.now == nil {
		s.now = time.Now
	}
	if !validKey(s.key) {
		return nil, errors.New("api_key: it is empty, or holds spaces or what is not ASCII")
	}
	var err error
	if s.target, err = targetOf(cfg); err != nil {
		return nil, err
	}
	if s.maker, err = entry.NewMaker(cfg); err != nil {
		return nil, err
	}
	encoding, err := encodingNamed(cfg.Compression)
	if err != nil {
		return nil, err
	}
	s.encoding = *datadogV2.NewSubmitLogOptionalParameters().WithContentEncoding(encoding)
	tls, err := cfg.TLS.ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("tls: %w", err)
	}
	s.client = newHTTPClient(tls)
	s.api = datadogV2.NewLogsApi(datadog.NewAPIClient(clientConfig(s.client)))
	s.closing, s.startClose = context.WithCancel(context.Background())
	return s, nil
}

func validKey(key string) bool {
	for i := range len(key) {
		if key[i] <= ' ' || key[i] > '~' {
			return false
		}
	}
	return key != ""
}

func encodingNamed(name string) (datadogV2.ContentEncoding, error) {
	switch name {
	case "", "gzip":
		return datadogV2.CONTENTENCODING_GZIP, nil
	case "deflate":
		return datadogV2.CONTENTENCODING_DEFLATE, nil
	case "none":
		return datadogV2.CONTENTENCODING_IDENTITY, nil
	}
	return "", fmt.Errorf("compression: %q is not one of gzip, deflate, none", name)
}

// clientConfig is the library's, with nothing of its own accord: no retry, and
// no dumps of requests, which hold events.
func clientConfig(client *http.Client) *datadog.Configuration {
	c := datadog.NewConfiguration()
	c.HTTPClient = client
	c.UserAgent = userAgent
	c.Debug = false
	c.Compress = false // of answers, which are short
	c.RetryConfiguration.EnableRetry = false
	return c
}

const userAgent = "auditrelay"

// Deliver implements relay.Sink. It returns once the intake has answered 202 to
// all that it takes.
func (s *Sink) Deliver(ctx context.Context, events []relay.Event) error {
	ctx, cancel := s.until(ctx)
	defer cancel()
	ctx = s.target.context(ctx, s.key)
	d := delivery{sink: s, settled: make([]bool, len(events))}
	now := s.now()
	for i := range events {
		e, err := s.maker.Make(&events[i], now)
		if err != nil {
			d.refuse(i, err)
			continue
		}
		if err := d.add(ctx, i, e); err != nil {
			return d.stopped(err)
		}
	}
	if err := d.flush(ctx); err != nil {
		return d.stopped(err)
	}
	return d.outcome()
}

// until returns a context that ends with ctx, and at Close.
func (s *Sink) until(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	if s.closing.Err() != nil {
		cancel(errClosed) // at once: AfterFunc does it in a goroutine of its own
	}
	stop := context.AfterFunc(s.closing, func() { cancel(errClosed) })
	return ctx, func() {
		stop()
		cancel(nil)
	}
}

// Close implements relay.Sink. A delivery under way fails at once.
func (s *Sink) Close() error {
	s.startClose()
	s.client.CloseIdleConnections()
	return nil
}
