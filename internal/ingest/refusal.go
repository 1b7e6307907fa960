package ingest

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/auditrelay/auditrelay/internal/ingest/credentials"
	"github.com/auditrelay/auditrelay/internal/ingest/received"
)

// refusal is the reason not to take a push, or a part of it. Its text goes to the sender:
// it holds neither events nor secrets.
type refusal struct {
	status     int
	reason     string // of a fixed set, for metrics and logs
	text       string
	cause      error         // for the log only; may be nil
	retryAfter time.Duration // 0 for none
	hangUp     bool          // reading the rest of the body is not worth it
	delay      time.Duration // of the answer
	logged     bool          // its maker has logged it
}

func (r *refusal) Error() string { return r.text }
func (r *refusal) Unwrap() error { return r.cause }

// errGone is for a sender without interest in the answer.
var errGone = &refusal{status: http.StatusBadRequest, reason: "aborted", hangUp: true, text: "the body ended early"}

// errForgotten is for recognised events, after a loss of these or of others of their
// time.
var errForgotten = &refusal{status: http.StatusServiceUnavailable, reason: "journal", retryAfter: retryUnableNow, text: "the journal lost events; push again"}

// asRefusal finds the refusal in err. Any other error is a decoder's.
func asRefusal(err error) *refusal {
	var r *refusal
	if errors.As(err, &r) {
		return r
	}
	return &refusal{status: http.StatusBadRequest, reason: "malformed", text: err.Error()}
}

// inBook maps reasons to those in the book of arrivals. To a sender whose pushes never arrive whole, it
// does not matter that it hung up itself, or that a proxy did.
var inBook = map[string]string{
	"unauthorized": received.Credential, "environment_rate": received.Quota,
	"environment_room": received.Budget, "journal_full": received.Budget,
	"malformed": received.Form, "unsupported": received.Form, "partial": received.Form, "slow": received.Form,
	"too_large": received.TooLarge, "aborted": received.Aborted, "overload": received.Busy, "journal": received.Unavailable,
}

// refused counts and logs a refused push of env (zero if nobody knows whose it is), and
// waits until it is time to answer. Meanwhile, the push holds neither a slot nor memory.
func (h *Handler) refused(r *http.Request, env credentials.Environment, why *refusal) {
	if reason := inBook[why.reason]; reason != "" && env != (credentials.Environment{}) {
		h.arrivals.Of(env).Refused(reason)
	}
	h.refusals.note(env, why)
	if why.delay > 0 {
		h.wait(r, why.delay)
	}
}

// answer writes the answer of the imitated server, and returns its status.
func (h *Handler) answer(w http.ResponseWriter, e *endpoint, err error) int {
	if err == nil {
		if e.takenBody != "" {
			w.Header().Set("Content-Type", "application/json")
		}
		w.WriteHeader(e.taken)
		if e.takenBody != "" {
			_, _ = io.WriteString(w, e.takenBody)
		}
		return e.taken
	}
	r := asRefusal(err)
	header := w.Header()
	if r.retryAfter > 0 {
		header.Set("Retry-After", strconv.Itoa(int(r.retryAfter/time.Second)))
	}
	if r.hangUp {
		header.Set("Connection", "close")
	}
	if r.status == http.StatusUnauthorized {
		header.Set("WWW-Authenticate", `Basic realm="auditrelay"`)
	}
	h.metrics.rejected.WithLabelValues(r.reason).Add(1)
	contentType, body := e.errorBody(r)
	header.Set("Content-Type", contentType)
	header.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(r.status)
	_, _ = w.Write(body)
	return r.status
}

// refusalLog logs a repeated refusal once a minute.
type refusalLog struct {
	logger *slog.Logger
	now    func() time.Time

	mu   sync.Mutex
	seen map[refusalKey]*refusalCount // guarded by mu; as many as environments times reasons
}

type refusalKey struct {
	env    credentials.Environment
	reason string
}

type refusalCount struct {
	logged time.Time
	since  int // refusals since then without a log line
}

const refusalLogEvery = time.Minute

// note counts a refusal, and logs the first of its kind in a minute.
func (l *refusalLog) note(env credentials.Environment, r *refusal) {
	if r.logged {
		return
	}
	key, now := refusalKey{env, r.reason}, l.now()
	l.mu.Lock()
	c := l.seen[key]
	if c == nil {
		if l.seen == nil {
			l.seen = map[refusalKey]*refusalCount{}
		}
		c = &refusalCount{}
		l.seen[key] = c
	}
	if !c.logged.IsZero() && now.Sub(c.logged) < refusalLogEvery {
		c.since++
		l.mu.Unlock()
		return
	}
	before := c.since
	c.logged, c.since = now, 0
	l.mu.Unlock()
	attrs := []any{
		slog.String("project", env.Project), slog.String("environment", env.Environment),
		slog.String("reason", r.reason), slog.Int("status", r.status), slog.String("error", r.text),
		slog.Int("unlogged_before", before),
	}
	if r.cause != nil {
		attrs = append(attrs, slog.String("cause", r.cause.Error()))
	}
	l.logger.Warn("push refused", attrs...)
}

// maxNamed bounds the problems named by an answer; maxProblem bounds each, in bytes.
const (
	maxNamed   = 5
	maxProblem = 200
)

// report is the tally of a push's entries, for its answer.
type report struct {
	most     int      // entries allowed
	entries  int      // taken or not
	refused  int      // entries not taken
	problems int      // of those, and of streams without entries
	named    []string // the first problems
}

// count counts entries, and refuses the push if there are too many.
func (r *report) count(n int) error {
	if r.entries += n; r.entries > r.most {
		return tooLarge("the push has more than the allowed %d entries", r.most)
	}
	return nil
}

// refuse counts n entries as refused, and notes the problem.
func (r *report) refuse(n int, problem error) {
	r.refused += n
	r.problems++
	if len(r.named) < maxNamed {
		text := problem.Error()
		r.named = append(r.named, text[:min(len(text), maxProblem)])
	}
}

// partial is the answer if only some entries were taken.
func (r *report) partial(taken int) error {
	more := ""
	if n := r.problems - len(r.named); n > 0 {
		more = fmt.Sprintf("; and %d more", n)
	}
	return &refusal{
		status: http.StatusBadRequest, reason: "partial",
		text: fmt.Sprintf("%d entries were taken, %d were not: %s%s", taken, r.refused, strings.Join(r.named, "; "), more),
	}
}
