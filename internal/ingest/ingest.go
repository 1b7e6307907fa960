// Package ingest takes the pushes of environments over HTTP, in Loki's or Datadog's form,
// and hands them to the journal.
//
// It answers 2xx only after the journal has all of a push. It refuses aloud: with a 4xx
// and the cause, or with 429 or 503 and Retry-After when trying again helps. It keeps the
// good entries of a push that has bad ones as well, and a 400 counts the bad.
//
// It reads a body whole, within a bound on it and on the sum of all bodies. It decodes
// the body in one pass, straight into a record.Batch, the form of the disk: so it copies
// a body once between the socket and the record. Before decoding allocates memory, it
// charges the push for it. An event's id is the body's own event_id, or else an HMAC; the
// journal keeps its key.
//
// One environment cannot push another out. Each may have a quota of events and bytes a
// second, kept by token buckets of ten seconds' worth, and of undelivered bytes. Without
// any quota, an environment may hold up to eight times the free part of the journal's
// budget. So the largest holder is refused first, with 429, and a small one finds room as
// long as there is any.
package ingest

import (
	"context"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/config/secret"
	"github.com/auditrelay/auditrelay/internal/control/traces"
	"github.com/auditrelay/auditrelay/internal/ingest/credentials"
	"github.com/auditrelay/auditrelay/internal/ingest/received"
	"github.com/auditrelay/auditrelay/internal/journal/record"
)

// Journal keeps events.
type Journal interface {
	// Append returns nil once the batch is durable. After an error, it may be durable or
	// not. The error is journal.ErrFull if the disk budget is spent. Calls may be
	// concurrent. Append keeps no reference to the batch.
	Append(ctx context.Context, b *record.Batch) error
}

// Credentials finds the environment of a credential, in a time independent of the
// credential's content. Calls may be concurrent.
type Credentials interface {
	Basic(username, password string) (credentials.Environment, bool)
	APIKey(key string) (credentials.Environment, bool)
	// Owner finds the environment of a user name. This proves nothing.
	Owner(username string) (credentials.Environment, bool)
	// Former finds the environment of a credential that was good until the environment was
	// taken out of the configuration, and counts the push.
	Former(username, password string) (credentials.Environment, bool)
}

// Recent knows the recently stored events. Calls may be concurrent.
type Recent interface {
	// Key stands for the one event with this source, ID and body.
	Key(source string, id, body []byte) EventKey
	// Has reports whether the key was added not too long ago.
	Has(k EventKey) bool
	// Add adds the keys of durable events, with the Epoch from before their append. It
	// does not keep the slice.
	Add(keys []EventKey, epoch uint64)
	Epoch() uint64
}

// Options configure a Handler.
type Options struct {
	Credentials Credentials
	Journal     Journal
	// Recent recognises repeated events. Without it, they are stored again.
	Recent Recent
	Limits config.IngestLimits // each above zero, as those of a validated configuration
	// Room bounds each environment's part of the journal; nil is no bound.
	Room Room
	// Quotas by environment. Any other environment has none.
	Quotas map[credentials.Environment]config.Quota
	// IDKey is the key of generated event ids.
	IDKey secret.Text
	// Anonymous is the environment of pushes without a credential. If it is zero, they
	// are refused.
	Anonymous credentials.Environment
	// Arrivals counts pushes and events by environment; nil for a book of the handler's own.
	Arrivals   *received.Book
	Logger     *slog.Logger
	Registerer prometheus.Registerer
	Tracer     *traces.Tracer   // nil for no traces
	Now        func() time.Time // nil for time.Now
}

// Handler serves the push endpoints. It is safe for concurrent use.
type Handler struct {
	credentials Credentials
	journal     Journal
	recent      Recent
	limits      config.IngestLimits
	anonymous   credentials.Environment
	logger      *slog.Logger
	now         func() time.Time

	metrics  *metrics
	arrivals *received.Book
	tracer   *traces.Tracer // nil for no traces
	refusals refusalLog
	guesses  *guesses
	stopping chan struct{} // closed when the server shuts down
	quotas   *quotas
	memory   budget
	slots    chan struct{} // one element for each push at work
	pushes   sync.Pool     // of *push
	heads    sync.Pool     // of *[headBytes]byte
	inflate  inflaters
}

// New makes a Handler.
func New(o Options) *Handler {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Arrivals == nil {
		o.Arrivals = received.New(o.Now)
	}
	h := &Handler{
		credentials: o.Credentials, journal: o.Journal, recent: o.Recent, limits: o.Limits, anonymous: o.Anonymous,
		logger: o.Logger, now: o.Now, arrivals: o.Arrivals, tracer: o.Tracer,
		memory: budget{limit: int64(o.Limits.InFlightBytes)},
		slots:  make(chan struct{}, o.Limits.Concurrent),
		pushes: sync.Pool{New: func() any { return newPush(o.IDKey) }},
		heads:  sync.Pool{New: func() any { return new([headBytes]byte) }},
	}
	h.refusals.logger, h.refusals.now = o.Logger, o.Now
	h.guesses, h.stopping = newGuesses(o.Logger, o.Now), make(chan struct{})
	h.metrics = newMetrics(o.Registerer, &h.memory, o.Arrivals)
	h.quotas = newQuotas(o)
	return h
}

// answerTime bounds a client's time to read an answer.
const answerTime = 10 * time.Second

// Server returns an HTTP server for h. It keeps slow and greedy clients off before a
// request reaches h. Its address, TLS, door and lifecycle are the caller's; h has one
// server. It speaks HTTP/1 only: there, a connection costs as much as one push.
func (h *Handler) Server() *http.Server {
	server := &http.Server{
		Handler:           h,
		ReadHeaderTimeout: 10 * time.Second,
		// For a body no handler reads. A push has its pace.
		ReadTimeout: h.limits.ReadTimeout,
		// It runs from the header on, so it must not cut off a push the journal may still
		// take. The answer itself has answerTime.
		WriteTimeout:   h.limits.ReadTimeout + 2*time.Minute,
		IdleTimeout:    2 * time.Minute,
		MaxHeaderBytes: 16 << 10,
		Protocols:      new(http.Protocols),
	}
	server.Protocols.SetHTTP1(true)
	server.RegisterOnShutdown(sync.OnceFunc(func() { close(h.stopping) }))
	return server
}
