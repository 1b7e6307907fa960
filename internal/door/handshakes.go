package door

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// The reasons of failed TLS handshakes.
const (
	handshakeCertificate = "certificate" // one side refuses the other's
	handshakePlain       = "plain_http"  // the client speaks HTTP
	handshakeOther       = "other"       // scanners, mostly
)

// advised has the remedy of a reason, for the log.
var advised = map[string]string{
	handshakeCertificate: "TLS handshakes fail over a certificate: see that the listener's names the host that clients connect to, " +
		"comes with its intermediates, has not expired, and is from an authority that they trust",
	handshakePlain: "TLS handshakes fail, as clients speak HTTP to this HTTPS listener: give them an https address",
}

// handshakeLogEvery bounds the log: any stranger can fail a handshake.
const handshakeLogEvery = time.Hour

// handshakes takes the complaints of a listener's server, and counts failed TLS
// handshakes. A provider distrusting the relay's certificate leaves no other trace.
type handshakes struct {
	slog.Handler
	failed *prometheus.CounterVec

	mu     sync.Mutex // guards logged
	logged map[string]time.Time
}

func newHandshakes(o Options) *handshakes {
	return &handshakes{
		Handler: complaints{o.Logger.With("listener", o.Name).Handler()},
		failed:  o.Metrics.handshakes.MustCurryWith(prometheus.Labels{"listener": o.Name}),
		logged:  map[string]time.Time{},
	}
}

// Handle counts a failed handshake, and warns of each reason with a remedy once an hour.
func (h *handshakes) Handle(ctx context.Context, r slog.Record) error {
	failure, is := strings.CutPrefix(r.Message, handshakeError+" from ")
	if !is {
		return h.Handler.Handle(ctx, r)
	}
	reason := handshakeReason(failure)
	h.failed.WithLabelValues(reason).Inc()
	if h.due(reason, r.Time) {
		r.Message = advised[reason]
		r.AddAttrs(slog.String("newest", failure))
	}
	return h.Handler.Handle(ctx, r)
}

func (h *handshakes) due(reason string, at time.Time) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if last, was := h.logged[reason]; advised[reason] == "" || was && at.Sub(last) < handshakeLogEvery {
		return false
	}
	h.logged[reason] = at
	return true
}

// handshakeReason reads the text of crypto/tls and net/http. In TLS 1.3, crypto/tls
// cannot read OpenSSL's alert about a certificate, and reports a bad record (seen with
// curl and Python).
func handshakeReason(failure string) string {
	switch {
	case strings.Contains(failure, "certificate"), strings.Contains(failure, "bad record MAC"):
		return handshakeCertificate
	case strings.Contains(failure, "HTTP request to an HTTPS server"):
		return handshakePlain
	}
	return handshakeOther
}
