package connlimit

import (
	"bytes"
	"log" //nolint:depguard // http.Server.ErrorLog is of its type
	"log/slog"
	"strings"
	"sync"
	"time"
)

// The reasons of failed TLS handshakes.
const (
	handshakeCertificate = "certificate" // one side refuses the other's
	handshakePlain       = "plain_http"  // the client speaks HTTP
	handshakeOther       = "other"       // mostly scanners
)

// advised holds what to do about a reason, for the log.
var advised = map[string]string{
	handshakeCertificate: "TLS handshakes fail over a certificate: see that the listener's names the host that clients connect to, " +
		"comes with its intermediates, has not expired, and is from an authority that they trust",
	handshakePlain: "TLS handshakes fail because clients speak HTTP to this HTTPS listener: give them an https address",
}

// handshakeLogEvery bounds the log, since any stranger can fail a handshake.
const handshakeLogEvery = time.Hour

// ErrorLog returns the log of an http.Server: panics of its handler are errors, its other
// complaints are warnings, and failed TLS handshakes are counted in m, which may be nil. A
// provider that distrusts the relay's certificate leaves no other trace.
func ErrorLog(name string, logger *slog.Logger, m *Metrics) *log.Logger {
	return log.New(&complaints{logger: logger.With("listener", name), listener: name, metrics: m, logged: map[string]time.Time{}}, "", 0)
}

// complaints takes the lines that an http.Server logs.
type complaints struct {
	logger   *slog.Logger
	listener string
	metrics  *Metrics

	mu     sync.Mutex // guards logged
	logged map[string]time.Time
}

// Write logs one complaint.
func (c *complaints) Write(line []byte) (int, error) {
	text := string(bytes.TrimSpace(line))
	if failure, is := strings.CutPrefix(text, "http: TLS handshake error from "); is {
		c.handshake(failure)
	} else if strings.HasPrefix(text, "http: panic serving") {
		c.logger.Error(text)
	} else {
		c.logger.Warn(text)
	}
	return len(line), nil
}

// handshake counts a failed handshake, and warns of each reason that has advice once an hour.
func (c *complaints) handshake(failure string) {
	reason := handshakeReason(failure)
	if c.metrics != nil {
		c.metrics.handshakes.WithLabelValues(c.listener, reason).Inc()
	}
	if c.due(reason) {
		c.logger.Warn(advised[reason], "newest", failure)
	} else {
		c.logger.Debug("a TLS handshake failed", "reason", failure)
	}
}

func (c *complaints) due(reason string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if advised[reason] == "" || time.Since(c.logged[reason]) < handshakeLogEvery {
		return false
	}
	c.logged[reason] = time.Now()
	return true
}

// handshakeReason reads the text of crypto/tls and net/http. In TLS 1.3, crypto/tls cannot
// read OpenSSL's alert about a certificate, and reports a bad record (seen with curl and
// Python).
func handshakeReason(failure string) string {
	switch {
	case strings.Contains(failure, "certificate"), strings.Contains(failure, "bad record MAC"):
		return handshakeCertificate
	case strings.Contains(failure, "HTTP request to an HTTPS server"):
		return handshakePlain
	}
	return handshakeOther
}
