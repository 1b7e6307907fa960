package ingest

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/auditrelay/auditrelay/internal/control/traces"
	"github.com/auditrelay/auditrelay/internal/ingest/connlimit"
	"github.com/auditrelay/auditrelay/internal/ingest/credentials"
	"github.com/auditrelay/auditrelay/internal/ingest/received"
	"github.com/auditrelay/auditrelay/internal/journal"
	"github.com/auditrelay/auditrelay/internal/journal/record"
	"github.com/auditrelay/auditrelay/relay"
)

var errMethod = &refusal{status: http.StatusMethodNotAllowed, reason: "method", hangUp: true, text: "push with POST"}

// ServeHTTP takes one push.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	start := time.Now()
	h.metrics.inFlight.Inc()
	defer h.metrics.inFlight.Dec()
	e, key := route(r.URL.Path)
	trace := h.tracer.Push(start, e.name)
	var env credentials.Environment
	var err error
	switch {
	case e == nowhere:
		err = errUnknownPath
	case r.Method != http.MethodPost:
		w.Header().Set("Allow", http.MethodPost)
		err = errMethod
	default:
		if env, err = h.authenticate(r, e, key); err == nil {
			connlimit.Trust(r.Context())
			err = h.take(w, r, e, env, trace)
		}
	}
	if err != nil {
		h.refused(r, env, asRefusal(err))
	}
	// Only a test's writer has no deadlines. Then there is none.
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(answerTime))
	status := h.answer(w, e, err)
	h.metrics.done(e, status, time.Since(start))
	trace.End(env.Project, env.Environment, status)
}

// take takes a push of env. After nil, all of it is durable.
func (h *Handler) take(w http.ResponseWriter, r *http.Request, e *endpoint, env credentials.Environment, trace *traces.Push) error {
	f, err := formOf(r, e)
	if err != nil {
		return err
	}
	source := relay.SourceOf(env.Project, env.Environment)
	if err := h.quotas.admit(r.Context(), env, source); err != nil {
		return err
	}
	p, err := h.read(w, r)
	if err != nil {
		return err
	}
	defer h.release(p)
	// From here on the client cannot hold anything up.
	if err := h.enter(r.Context()); err != nil {
		return err
	}
	defer func() { <-h.slots }()
	p.start(h.now(), env, source, h)
	p.trace = trace
	err = h.decode(r, p, f)
	h.quotas.charge(env, p.report.entries, p.cost(err))
	if err != nil {
		return err
	}
	return h.keep(r.Context(), p, env)
}

// decode fills the push's batch.
func (h *Handler) decode(r *http.Request, p *push, f form) error {
	if err := h.expand(p, f); err != nil {
		return err
	}
	if f.inURL {
		if err := p.queryLabels(r); err != nil {
			return err
		}
	}
	return f.decode(p)
}

// The longest wait of a push for others, and the Retry-After that follows it.
const (
	slotWait       = 2 * time.Second
	retryOverload  = time.Second
	retryUnableNow = 5 * time.Second
)

var errBusy = &refusal{status: http.StatusTooManyRequests, reason: "overload", retryAfter: retryOverload, text: "too many pushes at once"}

// enter waits for a slot.
func (h *Handler) enter(ctx context.Context) error {
	select {
	case h.slots <- struct{}{}:
		return nil
	default:
	}
	timer := time.NewTimer(slotWait)
	defer timer.Stop()
	select {
	case h.slots <- struct{}{}:
		return nil
	case <-timer.C:
		return errBusy
	case <-ctx.Done():
		return errGone
	}
}

// keep makes the good entries durable, and then reports the bad ones.
//
// If the process dies before Append returns, nothing was acknowledged, and the sender
// pushes again. If it dies later, the sender may push stored events again. The next
// process reads the journal back to recognise them.
func (h *Handler) keep(ctx context.Context, p *push, env credentials.Environment) error {
	if p.batch.records.Len() > 0 {
		if err := h.append(ctx, p, env); err != nil {
			return err
		}
		if h.recent != nil {
			h.recent.Add(p.batch.keys, p.batch.epoch) // not before: see known
		}
	}
	if p.batch.duplicates > 0 && p.batch.epoch != h.recent.Epoch() {
		return errForgotten
	}
	if p.taken() > 0 {
		h.arrivals.Of(env).Took(received.Push{
			Events: int64(p.batch.records.Len()), Duplicates: int64(p.batch.duplicates), Bytes: p.batch.bytes,
			Newest: p.batch.newest, Lateness: &p.batch.lateness,
		})
	}
	if p.report.problems > 0 {
		h.metrics.rejected.WithLabelValues("entry").Add(float64(p.report.refused))
		return p.report.partial(p.taken())
	}
	return nil
}

// append appends the push's batch, within the environment's share of the journal.
func (h *Handler) append(ctx context.Context, p *push, env credentials.Environment) error {
	giveBack, err := h.quotas.reserve(ctx, env, p.batch.group.Source, int64(p.batch.records.Size()))
	if err != nil {
		return err
	}
	defer giveBack()
	begun := time.Now()
	if err := h.journal.Append(ctx, &p.batch.records); err != nil {
		return journalRefusal(err)
	}
	p.trace.Committed(begun, p.batch.records.Record(), p.batch.records.Len())
	return nil
}

func journalRefusal(err error) error {
	switch {
	case errors.Is(err, journal.ErrFull):
		return &refusal{status: http.StatusServiceUnavailable, reason: "journal_full", retryAfter: retryUnableNow, text: "the journal is full", cause: err}
	case errors.Is(err, record.ErrTooLarge): // by its labels: lines are bounded
		return &refusal{status: http.StatusRequestEntityTooLarge, reason: "too_large", text: err.Error(), cause: err}
	}
	return &refusal{status: http.StatusServiceUnavailable, reason: "journal", retryAfter: retryUnableNow, text: "the journal is unavailable", cause: err}
}
