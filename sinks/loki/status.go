package loki

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/auditrelay/auditrelay/internal/retry"
	"github.com/auditrelay/auditrelay/relay"
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

func (a *answer) class() class {
	switch a.status {
	case http.StatusOK, http.StatusNoContent:
		return acknowledged
	case http.StatusBadRequest:
		// A proxy that does not like the request answers in HTML, which Loki never does.
		if !strings.HasPrefix(a.header.Get("Content-Type"), "text/html") {
			return refused
		}
	case http.StatusRequestEntityTooLarge:
		return tooLarge
	case http.StatusInternalServerError:
		// This comes from between Loki's own processes: grpc_server_max_recv_msg_size.
		if strings.Contains(a.text, "received message larger than max") {
			return tooLarge
		}
	}
	return retryable
}

// The delays after answers that name none, and the longest delay that is believed.
const (
	rateDelay = time.Second
	maxDelay  = 10 * time.Minute
)

// err returns a retryable answer as an error.
func (a *answer) err() error {
	err := fmt.Errorf("loki answers %d%s", a.status, a.quote())
	if advice := a.advice(); advice != "" {
		err = fmt.Errorf("%w (%s)", err, advice)
	}
	err = relay.WithClass(err, relay.StatusClass(a.status))
	delay, told := retryAfter(a.header.Get("Retry-After"))
	if !told && a.status == http.StatusTooManyRequests {
		delay, told = rateDelay, true
	}
	if told {
		return relay.RetryAfter(err, delay)
	}
	return err
}

// quote returns the beginning of an answer, for a message.
func (a *answer) quote() string {
	if text := a.show(a.text); text != "" {
		return ": " + text
	}
	return ""
}

// show returns the beginning of a part of an answer, in one line.
func (a *answer) show(text string) string {
	return cut(a.hide.Replace(strings.Join(strings.Fields(text), " ")))
}

// errRefused says why one event is refused.
func (a *answer) errRefused(why string) error {
	return errors.New("loki refuses it: " + a.show(why))
}

// errMend is for a setting that is missing.
func (a *answer) errMend(what string) error {
	return fmt.Errorf("loki refuses every event: %s (correct labels, or Loki's limits; nothing is lost meanwhile)", a.show(what))
}

// cut bounds a text that is shown.
func cut(text string) string {
	const most = 300
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + "…"
}

func retryAfter(value string) (time.Duration, bool) {
	return retry.ParseAfter(value, time.Now(), maxDelay)
}

// concernsAll reports whether every other push would get the same answer.
func (a *answer) concernsAll() bool {
	return !strings.HasPrefix(a.text, "Per stream rate limit exceeded") &&
		!strings.Contains(a.text, "reason: 'Per stream rate limit exceeded") &&
		!strings.HasPrefix(a.text, "maximum active stream limit exceeded")
}

func (a *answer) advice() string {
	switch {
	case a.status == http.StatusUnauthorized:
		return "check username and password or bearer_token, and tenant"
	case a.status == http.StatusForbidden:
		return "let the credential write to this tenant"
	case a.status == http.StatusNotFound, a.status == http.StatusMethodNotAllowed:
		return "check url: it must be the push endpoint, ending in /loki/api/v1/push"
	case a.status/100 == 3:
		return "set url to the target of the redirect"
	case a.status == http.StatusBadRequest:
		return "this is no answer of Loki's: check url, and any proxy in front of Loki"
	case a.status/100 == 2:
		return "this is no acknowledgement: see whether ingestion is blocked for the tenant"
	}
	return ""
}

// errTooLarge is for an event that is too large for a push even by itself.
func (a *answer) errTooLarge(size int) error {
	return fmt.Errorf("a push of this event alone, %d bytes, is too large: it answers %d%s", size, a.status, a.quote())
}

// errTooLate is for an event that is too late even in the stream of its hour.
var errTooLate = errors.New("its time is too far behind, even in a stream for late events of its hour: " +
	"set late_after to no more than half of Loki's max_chunk_age")
