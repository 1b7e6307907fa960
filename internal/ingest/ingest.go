// Package ingest takes the pushes of environments over HTTP, in Loki's or Datadog's
// form, and hands them to the journal.
//
// It answers 2xx only after the journal has all of a push. It refuses aloud: with a 4xx
// and the cause, or with 429 or 503 and Retry-After when trying again helps. It keeps
// the good entries of a push beside bad ones, and a 400 counts the bad.
//
// A body is read whole, within a bound on it and on the sum of all bodies. It is decoded in one
// pass, straight into a record.Batch, the form of the disk: so a body is copied once between the
// socket and the record. The push is charged for everything that decoding holds before
// it is allocated. An event's id is the body's own event_id, or else an HMAC; the journal
// keeps its key.
//
// One environment cannot push another out. Each may have a quota of events and
// bytes a second, kept by token buckets of ten seconds' worth, and of undelivered
// bytes. Without any quota, an environment may hold up to eight times the free part of
// the journal's budget. So the largest holder is refused first, with 429, and a
// small one finds room as long as there is any.
package ingest

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/config/secret"
	"github.com/auditrelay/auditrelay/internal/credentials"
	"github.com/auditrelay/auditrelay/internal/recent"
	"github.com/auditrelay/auditrelay/internal/record"
)

// Journal keeps events.
type Journal interface {
	// Append returns nil once the batch is durable. Any error means that it may
	// not be; journal.ErrFull that the disk budget is spent. It may be called
	// concurrently, and does not refer to the batch after it returned.
	Append(ctx context.Context, b *record.Batch) error
}

// Credentials tells which environment a credential belongs to, in a time that
// tells nothing of the credential. Its methods may be called concurrently.
type Credentials interface {
	Basic(username, password string) (credentials.Environment, bool)
	APIKey(key string) (credentials.Environment, bool)
	// Owner tells whose user name it is; that proves nothing.
	Owner(username string) (credentials.Environment, bool)
}

// Recent knows the events that became durable a short while ago. Its methods
// may be called concurrently.
type Recent interface {
	// Key stands for the event with this source, ID and body, and no other.
	Key(source string, id, body []byte) recent.Key
	// Has reports whether the key was added, and not too long ago.
	Has(k recent.Key) bool
	// Add adds the keys of events that are durable. epoch is what Epoch gave before
	// they were appended. It does not keep the slice.
	Add(keys []recent.Key, epoch uint64)
	Epoch() uint64
}

// Options are what a Handler is made of.
type Options struct {
	Credentials Credentials
	Journal     Journal
	// Recent recognises what is pushed again; nil stores it again.
	Recent Recent
	Limits config.IngestLimits // each above zero
	// Room bounds what each environment takes of the journal; nil is no bound.
	Room Room
	// Quotas are by environment; one that is not in it has none.
	Quotas map[credentials.Environment]config.Quota
	// IDKey is the key of the ids of events that bring none; empty for a random one.
	IDKey secret.Text
	// Anonymous is the environment of pushes without a credential; they are
	// refused where it is zero.
	Anonymous  credentials.Environment
	Logger     *slog.Logger
	Registerer prometheus.Registerer
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
	activity activity
	refusals refusalLog
	guesses  *guesses
	stopping chan struct{} // closed when the server shuts down
	quotas   *quotas
	memory   budget
	slots    chan struct{} // one element for each push that is worked on
	pushes   sync.Pool     // of *push
	heads    sync.Pool     // of *[headBytes]byte
	inflate  inflaters
}

// New makes a Handler.
func New(o Options) (*Handler, error) {
	if err := checkLimits(o.Limits); err != nil {
		return nil, err
	}
	if o.Credentials == nil || o.Journal == nil || o.Logger == nil || o.Registerer == nil {
		return nil, errors.New("ingest needs credentials, a journal, a logger and a registerer")
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.IDKey.Empty() {
		o.IDKey = secret.New(rand.Text())
	}
	h := &Handler{
		credentials: o.Credentials, journal: o.Journal, recent: o.Recent, limits: o.Limits, anonymous: o.Anonymous,
		logger: o.Logger, now: o.Now,
		memory: budget{limit: int64(o.Limits.InFlightBytes)},
		slots:  make(chan struct{}, o.Limits.Concurrent),
		pushes: sync.Pool{New: func() any { return newPush(o.IDKey) }},
		heads:  sync.Pool{New: func() any { return new([headBytes]byte) }},
	}
	h.refusals.logger, h.refusals.now = o.Logger, o.Now
	h.guesses, h.stopping = newGuesses(o.Logger, o.Now), make(chan struct{})
	h.metrics = newMetrics(o.Registerer, &h.memory)
	h.quotas = newQuotas(o)
	return h, nil
}

func checkLimits(l config.IngestLimits) error {
	var errs []error
	for _, f := range []struct {
		name  string
		value int64
	}{
		{"body_bytes", int64(l.BodyBytes)},
		{"decompressed_bytes", int64(l.DecompressedBytes)},
		{"entries", int64(l.Entries)},
		{"line_bytes", int64(l.LineBytes)},
		{"labels", int64(l.Labels)},
		{"label_bytes", int64(l.LabelBytes)},
		{"concurrent", int64(l.Concurrent)},
		{"in_flight_bytes", int64(l.InFlightBytes)},
		{"read_timeout", int64(l.ReadTimeout)},
	} {
		if f.value <= 0 {
			errs = append(errs, fmt.Errorf("ingest limit %s is %d, it must be above 0", f.name, f.value))
		}
	}
	return errors.Join(errs...)
}

// answerTime is how long a client may take to read an answer.
const answerTime = 10 * time.Second

// Server gives an HTTP server for h, with what keeps slow and greedy clients
// off before a request reaches h. Its address, TLS, door and lifecycle are the
// caller's; h has one server. It speaks HTTP/1 only, over which a connection costs what one push does.
func (h *Handler) Server() *http.Server {
	server := &http.Server{
		Handler:           h,
		ReadHeaderTimeout: 10 * time.Second,
		// For a body that no handler reads; else the push has a pace.
		ReadTimeout: h.limits.ReadTimeout,
		// From the header on, so that no push is cut off which the journal still may
		// take; the answer itself has answerTime.
		WriteTimeout:   h.limits.ReadTimeout + 2*time.Minute,
		IdleTimeout:    2 * time.Minute,
		MaxHeaderBytes: 16 << 10,
		Protocols:      new(http.Protocols),
	}
	server.Protocols.SetHTTP1(true)
	server.RegisterOnShutdown(sync.OnceFunc(func() { close(h.stopping) }))
	return server
}
