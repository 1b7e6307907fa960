package loki

import (
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/auditrelay/auditrelay/internal/httpsink"
)

// class is what an answer means for a push.
type class int

const (
	// retryable errors may pass, perhaps with an operator's help.
	retryable class = iota
	acknowledged
	refused  // Loki examined the entries, and left out some of them
	tooLarge // smaller pushes may be taken
)

// answer is an answer of Loki.
type answer struct{ *httpsink.Answer }

func (a *answer) class() class {
	switch a.Status {
	case http.StatusOK, http.StatusNoContent:
		if !a.IsPage() && !a.Denies() { // Loki writes neither; a login page is a 200, too
			return acknowledged
		}
	case http.StatusBadRequest:
		if !a.IsPage() && !a.Broken {
			return refused
		}
	case http.StatusRequestEntityTooLarge:
		return tooLarge
	case http.StatusInternalServerError:
		// This comes from between Loki's own processes: grpc_server_max_recv_msg_size.
		if strings.Contains(a.Text, "received message larger than max") {
			return tooLarge
		}
	}
	return retryable
}

// err returns a retryable answer as an error.
func (a *answer) err() error {
	remedy := ""
	switch {
	case (a.Status == http.StatusBadRequest || a.Status/100 == 2) && a.IsPage():
		remedy = "this is no answer of Loki's: check url, and any proxy in front of Loki"
	case a.Status/100 == 2:
		remedy = "this is no acknowledgement: see whether ingestion is blocked for the tenant"
	}
	return a.Err(a.Text, remedy)
}

// errRefused says why one event is refused.
func (a *answer) errRefused(why string) error {
	return errors.New("loki refuses it: " + a.Show(why))
}

// errMend is for a setting that is missing.
func (a *answer) errMend(what string) error {
	return fmt.Errorf("loki refuses every event: %s (correct labels, or Loki's limits; nothing is lost meanwhile)", a.Show(what))
}

// concernsAll reports whether every other push would get the same answer.
func (a *answer) concernsAll() bool {
	return !strings.HasPrefix(a.Text, "Per stream rate limit exceeded") &&
		!strings.Contains(a.Text, "reason: 'Per stream rate limit exceeded") &&
		!strings.HasPrefix(a.Text, "maximum active stream limit exceeded")
}

// errTooLarge is for an event that is too large for a push even by itself.
func (a *answer) errTooLarge(size int) error {
	return fmt.Errorf("a push of this event alone, %d bytes, is too large: %w", size, a.err())
}

// errTooLate is for an event that is too late even in the stream of its hour.
var errTooLate = errors.New("its time is too far behind, even in a stream for late events of its hour: " +
	"set late_after to no more than half of Loki's max_chunk_age")
