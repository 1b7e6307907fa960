// Package datadog delivers events to Datadog's logs intake.
//
// It encodes log entries, fills requests with them, compresses these, and makes requests with the
// core of Datadog's client, which knows addresses and authentication. Datadog keeps an
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
	"sync"
	"time"

	"github.com/DataDog/datadog-api-client-go/v2/api/datadog"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/config/secret"
	"github.com/auditrelay/auditrelay/internal/httpsink"
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
	client     *httpsink.Client
	api        *datadog.APIClient // makes the requests
	compressor *compressor
	maker      *maker
	now        func() time.Time
	requests   sync.Pool // of *request
}

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
	s.client, err = httpsink.New(httpsink.Options{
		Target: s.target.url, TLS: cfg.TLS, Hide: secret.Hide(1, s.key),
		Credential: "the API key is not accepted; check api_key; it must be a key of this site", Address: "check site or url, and whatever stands between",
	})
	if err != nil {
		return nil, err
	}
	requests := datadog.NewConfiguration()
	requests.UserAgent, requests.Compress = httpsink.UserAgent, false // no answer is worth compressing
	s.api = datadog.NewAPIClient(requests)
	return s, nil
}

// Deliver implements relay.Sink. It returns after the intake has answered 202 for every entry
// that it takes.
func (s *Sink) Deliver(ctx context.Context, events []relay.Event) error {
	ctx, cancel := s.client.Until(ctx)
	defer cancel()
	ctx = s.target.context(ctx, s.key)
	d := delivery{sink: s, events: events, settled: make([]bool, len(events))}
	return d.outcome(d.run(ctx))
}

// Close implements relay.Sink. A delivery under way fails at once.
func (s *Sink) Close() error {
	s.client.Close()
	return nil
}
