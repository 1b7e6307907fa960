// Package datadog delivers events to Datadog's logs intake.
//
// It encodes log entries, fills requests with them, compresses these, and sends them with the
// core of Datadog's client, which knows sites, authentication and requests. Datadog keeps an
// event that is delivered twice as two logs, which have the same @ce.source and @ce.id.
//
// The client's package datadogV2, with a method for every operation of the API, takes minutes
// and gigabytes to compile, so nothing links it: the sink uses only api/datadog of the client,
// and encodes log entries itself. While one request is under way, the next one is encoded and
// compressed.
//
// The sink halves a refused request by itself. A request is only a part of a delivery, so if
// the pump did it, acknowledged entries would be sent again.
//
// # The parts of an entry
//
//   - message: the event's body, byte for byte. JSON cannot carry invalid UTF-8, so such a
//     body is in base64 there, and @auditrelay.encoding says so.
//   - ddsource, service, hostname, ddtags: by template.
//   - timestamp: the event's time in milliseconds, which is Datadog's official date.
//   - status: the body's own "status" if it is a short string, so that errors are shown as
//     errors.
//   - ce: the CloudEvents attributes, such as @ce.id; @ce.time has nanoseconds.
//   - the body's fields if it is a JSON object: each where Datadog itself puts the fields of
//     a JSON log, found as @action or @user_id. Fields whose name means something to Datadog
//     or to this package are below "event", as @event.status. Values stay as they are
//     written: a number keeps all its digits.
//   - auditrelay: the changes made to the entry; see marks. Usually there are none.
//
// # Datadog's silent changes
//
// The intake acknowledges an entry of more than 1 MB and cuts it, and it acknowledges one
// whose date is more than 18 hours old, or 2 hours ahead, and drops it. So such an entry is
// not made: the event is refused, or changed visibly if so configured.
// (https://docs.datadoghq.com/api/latest/logs/#send-logs and
// https://docs.datadoghq.com/logs/log_configuration/processors/log_date_remapper/)
package datadog

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/DataDog/datadog-api-client-go/v2/api/datadog"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/relay"
)

// Options are what a sink is given besides its section.
type Options struct {
	// Now is the clock for the intake's window of time. The default is time.Now.
	Now func() time.Time
}

// Sink delivers to one intake. It implements relay.Sink and relay.Checker.
//
// A delivery that is too large for one request is sent in several, one after the other, to keep
// the order. If the intake refuses a request because of its content, halves of it are sent,
// down to the refused entries. Deliver may be called concurrently.
type Sink struct {
	target     target
	key        string
	client     *http.Client
	api        *datadog.APIClient
	compressor *compressor
	maker      *maker
	now        func() time.Time
	requests   sync.Pool // of *request

	closing    context.Context // ends at Close
	startClose context.CancelFunc
}

var errClosed = errors.New("the sink is closed")

// New makes a sink from a complete section (see config.Sink.Complete). It connects to nothing;
// if the intake is down, the first delivery fails. Errors name the field of cfg, and no secret.
func New(cfg config.Datadog, opts Options) (*Sink, error) {
	s := &Sink{key: cfg.APIKey.Reveal(), now: opts.Now}
	if s.now == nil {
		s.now = time.Now
	}
	var err error
	if s.target, err = targetOf(cfg); err != nil {
		return nil, err
	}
	s.maker, s.compressor = newMaker(cfg), compressorNamed(cfg.Compression)
	tls, err := cfg.TLS.ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("tls: %w", err)
	}
	s.client = newHTTPClient(tls)
	s.api = datadog.NewAPIClient(clientConfig(s.client))
	s.closing, s.startClose = context.WithCancel(context.Background())
	return s, nil
}

// clientConfig returns the configuration of Datadog's client. It switches off retries, and
// dumps of requests, which contain events.
func clientConfig(client *http.Client) *datadog.Configuration {
	c := datadog.NewConfiguration()
	c.HTTPClient = client
	c.UserAgent = userAgent
	c.Debug = false
	c.Compress = false // the answers, since they are short
	c.RetryConfiguration.EnableRetry = false
	return c
}

const userAgent = "auditrelay"

// Deliver implements relay.Sink. It returns after the intake has answered 202 for every entry
// that it takes.
func (s *Sink) Deliver(ctx context.Context, events []relay.Event) error {
	ctx, cancel := s.until(ctx)
	defer cancel()
	ctx = s.target.context(ctx, s.key)
	d := delivery{sink: s, events: events, settled: make([]bool, len(events))}
	return d.outcome(d.run(ctx))
}

// until returns a context that ctx and Close end.
func (s *Sink) until(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	if s.closing.Err() != nil {
		cancel(errClosed) // at once, because AfterFunc does it in a goroutine of its own
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
