package witness

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"golang.org/x/time/rate"

	"github.com/auditrelay/auditrelay/internal/ingest/connlimit"
	"github.com/auditrelay/auditrelay/internal/trail/proof"
)

// Handler serves add-checkpoint, and the newest cosigned checkpoints.
type Handler struct {
	witness  *Witness
	log      *slog.Logger
	requests *prometheus.CounterVec
	size     *prometheus.GaugeVec
	last     *prometheus.GaugeVec

	mu      sync.Mutex
	told    map[said]*telling // what was logged about trusted logs, and no others; guarded by mu
	failure error             // of the disk with the state, until it takes a state again; guarded by mu
}

// said is what a line of the log is about, and telling how often it is written.
type said struct{ log, kind string }

type telling struct {
	rate.Sometimes
	more int // how many such refusals there were since the last line
}

// tellAgain is the least time between two lines about refusals of one kind of one log, so that
// nobody can fill the disk with them.
const tellAgain = time.Hour

// NewHandler makes the handler of a witness, with its metrics in r.
func NewHandler(w *Witness, logger *slog.Logger, r prometheus.Registerer) *Handler {
	register := promauto.With(r)
	h := &Handler{
		witness: w, log: logger, told: map[said]*telling{},
		requests: register.NewCounterVec(prometheus.CounterOpts{
			Name: "auditrelay_witness_requests_total", Help: "Requests for a cosignature, by result: cosigned, failed, or the kind of refusal.",
		}, []string{"result"}),
		size: register.NewGaugeVec(prometheus.GaugeOpts{
			Name: "auditrelay_witness_size", Help: "Size of the tree that was cosigned last, by the log's origin.",
		}, []string{"origin"}),
		last: register.NewGaugeVec(prometheus.GaugeOpts{
			Name: "auditrelay_witness_last_cosigned_timestamp_seconds", Help: "Time of the last cosignature of this process, by the log's origin.",
		}, []string{"origin"}),
	}
	for _, l := range w.Logs() {
		h.size.WithLabelValues(l.Origin).Set(float64(l.Size))
	}
	return h
}

func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	hash, monitored := strings.CutSuffix(strings.TrimPrefix(r.URL.Path, "/"), "/checkpoint")
	switch {
	case r.URL.Path == Path && r.Method == http.MethodPost:
		h.add(w, r)
	case r.URL.Path == Path:
		w.Header().Set("Allow", http.MethodPost)
		http.Error(w, "a checkpoint is sent with POST", http.StatusMethodNotAllowed)
	case monitored && r.Method != http.MethodGet && r.Method != http.MethodHead:
		w.Header().Set("Allow", "GET, HEAD")
		http.Error(w, "a checkpoint is read with GET", http.StatusMethodNotAllowed)
	case monitored:
		h.serveCheckpoint(w, r, hash)
	default:
		http.NotFound(w, r)
	}
}

// serveCheckpoint serves the newest cosigned checkpoint of the log whose origin has this hash.
func (h *Handler) serveCheckpoint(w http.ResponseWriter, r *http.Request, hash string) {
	text, found := h.witness.cosigned(hash)
	if !found {
		http.Error(w, "this witness has cosigned no checkpoint of such a log", http.StatusNotFound)
		return
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Cache-Control", "no-cache")
	if r.Method == http.MethodGet {
		_, _ = io.WriteString(w, text) // the client has gone: it asks again
	}
}

func (h *Handler) add(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, MaxRequest))
	if _, tooLong := errors.AsType[*http.MaxBytesError](err); tooLong {
		h.requests.WithLabelValues(Malformed).Inc()
		http.Error(w, "a request has at most "+strconv.Itoa(MaxRequest)+" bytes", http.StatusRequestEntityTooLarge)
		return
	}
	if err != nil {
		return // the client has gone
	}
	request, err := ParseRequest(body)
	if err != nil {
		h.requests.WithLabelValues(Malformed).Inc()
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	line, err := h.witness.Add(request)
	refusal, refused := errors.AsType[*Refusal](err)
	switch {
	case refused:
		h.refuse(w, r, refusal)
	case err != nil:
		h.fail(w, err)
	default:
		h.cosigned(request)
		connlimit.Trust(r.Context())
		_, _ = w.Write(line) // the client has gone: it asks again
	}
}

// refuse answers, and logs now and then what somebody has to look at.
func (h *Handler) refuse(w http.ResponseWriter, r *http.Request, refusal *Refusal) {
	h.requests.WithLabelValues(refusal.Kind).Inc()
	switch refusal.Kind {
	case Stale:
		connlimit.Trust(r.Context())
		w.Header().Set("Content-Type", SizeType)
		w.WriteHeader(refusal.Status)
		_, _ = io.WriteString(w, refusal.Text+"\n") // the client has gone: it asks again
		return
	case Busy:
		w.Header().Set("Retry-After", "60")
		h.tell(slog.LevelWarn, "a log asks for cosignatures more often than this witness gives them", refusal)
	case Inconsistent:
		h.tell(slog.LevelError, "a log has signed two trees of one size: its two checkpoints prove it, so keep this line as evidence", refusal)
	case Offered:
		h.tell(slog.LevelWarn, "a log goes on as a new generation, which is not cosigned: ask its operator why, and then accept its key", refusal)
	case Unproven:
		h.tell(slog.LevelWarn, "a checkpoint came with a proof that does not connect it to the cosigned one: the log shows another history, or whoever sent it has no right proof; this alone accuses nobody", refusal)
	case Superseded:
		h.tell(slog.LevelWarn, "a checkpoint of a closed generation is not cosigned; anybody can send an old one, so this alone accuses nobody", refusal)
	}
	http.Error(w, refusal.Text, refusal.Status)
}

// tell logs a refusal, unless one of its kind was logged of the same log a moment ago.
func (h *Handler) tell(level slog.Level, what string, refusal *Refusal) {
	h.mu.Lock()
	defer h.mu.Unlock()
	about := said{refusal.Log, refusal.Kind}
	if h.told[about] == nil {
		h.told[about] = &telling{Sometimes: rate.Sometimes{Interval: tellAgain}}
	}
	told := h.told[about]
	told.Do(func() {
		fields := []any{"log", refusal.Log, "kind", refusal.Kind, "reason", refusal.Text, "checkpoint", refusal.Checkpoint}
		if refusal.Cosigned != "" {
			fields = append(fields, "cosigned", refusal.Cosigned)
		}
		h.log.Log(context.Background(), level, what, append(fields, "refused_since_the_last_line", told.more)...)
		told.more = -1
	})
	told.more++
}

// fail answers after a failure of this witness. A full disk fails each request, but is logged
// once.
func (h *Handler) fail(w http.ResponseWriter, err error) {
	h.requests.WithLabelValues("failed").Inc()
	h.mu.Lock()
	known := h.failure != nil
	h.failure = err
	h.mu.Unlock()
	if !known {
		h.log.Error("checkpoints cannot be cosigned; each request tries again", "error", err)
	}
	w.Header().Set("Retry-After", "15")
	http.Error(w, "this witness cannot keep its state", http.StatusServiceUnavailable)
}

func (h *Handler) cosigned(request Request) {
	h.requests.WithLabelValues("cosigned").Inc()
	origin := proof.NoteOrigin(request.Checkpoint)
	h.mu.Lock()
	again := h.failure != nil
	h.failure = nil
	h.mu.Unlock()
	if again {
		h.log.Info("checkpoints are cosigned again", "origin", origin)
	}
	h.size.WithLabelValues(origin).Set(float64(h.witness.sizeOf(origin)))
	h.last.WithLabelValues(origin).Set(float64(time.Now().Unix()))
}

// Err returns why the witness cannot cosign at present.
func (h *Handler) Err() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.failure
}
