package witness

import (
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/auditrelay/auditrelay/internal/door"
)

// Handler serves add-checkpoint.
type Handler struct {
	witness  *Witness
	log      *slog.Logger
	requests *prometheus.CounterVec
	size     *prometheus.GaugeVec
	last     *prometheus.GaugeVec

	mu      sync.Mutex
	refused map[string]string // under mu; by origin, the newest refusal: it is logged once
	failure error             // under mu; of the state's disk, until it takes a state again
}

// NewHandler makes the handler of a witness, with its metrics in r.
func NewHandler(w *Witness, logger *slog.Logger, r prometheus.Registerer) *Handler {
	h := &Handler{
		witness: w, log: logger, refused: map[string]string{},
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "auditrelay_witness_requests_total", Help: "Requests for a cosignature, by result: cosigned, failed, or the kind of refusal.",
		}, []string{"result"}),
		size: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "auditrelay_witness_size", Help: "Size of the tree that was cosigned last, by the log's origin.",
		}, []string{"origin"}),
		last: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "auditrelay_witness_last_cosigned_timestamp_seconds", Help: "Time of the last cosignature of this process, by the log's origin.",
		}, []string{"origin"}),
	}
	r.MustRegister(h.requests, h.size, h.last)
	for _, l := range w.Logs() {
		h.size.WithLabelValues(l.Origin).Set(float64(l.Size))
	}
	return h
}

func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path != Path {
		http.NotFound(w, r)
		return
	}
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		http.Error(w, "a checkpoint is sent with POST", http.StatusMethodNotAllowed)
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, MaxRequest))
	var tooLong *http.MaxBytesError
	if errors.As(err, &tooLong) {
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
	var refusal *Refusal
	switch {
	case errors.As(err, &refusal):
		h.refuse(w, r, refusal, request)
	case err != nil:
		h.fail(w, err)
	default:
		h.cosigned(request)
		door.Trust(r.Context())
		_, _ = w.Write(line) // the client has gone: it asks again
	}
}

// refuse answers, and logs once a refusal somebody has to look at.
func (h *Handler) refuse(w http.ResponseWriter, r *http.Request, refusal *Refusal, request Request) {
	h.requests.WithLabelValues(refusal.Kind).Inc()
	if refusal.Kind == Stale {
		door.Trust(r.Context())
		w.Header().Set("Content-Type", SizeType)
		w.WriteHeader(refusal.Status)
		_, _ = io.WriteString(w, refusal.Text+"\n") // the client has gone: it asks again
		return
	}
	switch refusal.Kind {
	case Inconsistent, Offered, Superseded:
		h.logOnce(refusal, request)
	}
	http.Error(w, refusal.Text, refusal.Status)
}

func (h *Handler) logOnce(refusal *Refusal, request Request) {
	h.mu.Lock()
	known := h.refused[refusal.Origin] == refusal.Kind
	h.refused[refusal.Origin] = refusal.Kind
	h.mu.Unlock()
	if !known {
		h.log.Error("a checkpoint with the log's good signature is refused; keep this line as evidence", "origin", refusal.Origin,
			"kind", refusal.Kind, "reason", refusal.Text, "old", request.Old, "checkpoint", string(request.Checkpoint))
	}
}

// fail answers after a failure of this witness. A full disk fails each request: it is
// logged once.
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
	origin := originOf(request.Checkpoint)
	h.mu.Lock()
	again := h.failure != nil || h.refused[origin] != ""
	h.failure = nil
	delete(h.refused, origin)
	h.mu.Unlock()
	if again {
		h.log.Info("checkpoints are cosigned again", "origin", origin)
	}
	h.size.WithLabelValues(origin).Set(float64(h.witness.sizeOf(origin)))
	h.last.WithLabelValues(origin).Set(float64(time.Now().Unix()))
}

// Err is why the witness cannot cosign at present.
func (h *Handler) Err() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.failure
}
