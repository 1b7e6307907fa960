package management

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"
	"unicode"

	"github.com/auditrelay/auditrelay/internal/retryafter"
)

var (
	// ErrNoResource says that a 2xx answer did not hold the resource asked for.
	ErrNoResource = errors.New("the answer holds no such resource")
	// ErrAnswerTooLarge says that an answer was longer than Options.MaxAnswerBytes.
	ErrAnswerTooLarge = errors.New("the answer is too large")
)

// longestRetryAfter bounds what a Retry-After header may ask for.
const longestRetryAfter = 24 * time.Hour

// APIError is an answer other than 2xx; errors.As finds it. Its texts are the
// API's own, with the secrets that the client knows taken out.
type APIError struct {
	// Status is the HTTP status.
	Status int
	// RequestID, Type, Message and URL are the body's request_id, error_type,
	// error_message and error_url. Where the body is not the documented JSON,
	// Message holds the beginning of its text and the others may be empty.
	RequestID string
	Type      string
	Message   string
	URL       string
	// RetryAfter is how long the API asks to wait, by its Retry-After header;
	// zero where it did not say.
	RetryAfter time.Duration
}

func (e *APIError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "management API answered %d", e.Status)
	if e.Type != "" {
		b.WriteString(" " + e.Type)
	}
	if e.Message != "" {
		b.WriteString(": " + e.Message)
	}
	if e.RequestID != "" {
		b.WriteString(" (request " + e.RequestID + ")")
	}
	return b.String()
}

// IsNotFound reports whether err is, or wraps, a 404 of the API.
func IsNotFound(err error) bool {
	var e *APIError
	return errors.As(err, &e) && e.Status == http.StatusNotFound
}

// errorBody is the document's error body. The members are decoded one by one,
// since a proxy's error page may use the same names with other types.
type errorBody map[string]json.RawMessage

func (b errorBody) text(name string) string {
	var s string
	if json.Unmarshal(b[name], &s) != nil {
		return ""
	}
	return s
}

// newAPIError reads an answer's error, body being at most its beginning.
func newAPIError(resp *http.Response, body []byte, scrub *scrubber) *APIError {
	clean := func(s string) string { return printable(scrub.clean(s)) }
	e := &APIError{Status: resp.StatusCode}
	e.RetryAfter, _ = retryafter.Parse(resp.Header.Get("Retry-After"), time.Now(), longestRetryAfter) // else zero
	var b errorBody
	if json.Unmarshal(body, &b) != nil {
		e.Message = clean(string(body))
	} else {
		e.RequestID, e.Type = clean(b.text("request_id")), clean(b.text("error_type"))
		e.Message, e.URL = clean(b.text("error_message")), clean(b.text("error_url"))
	}
	if e.Message == "" {
		e.Message = http.StatusText(e.Status)
	}
	return e
}

// printable makes one bounded line of a text that a stranger wrote.
func printable(s string) string {
	const limit = 500
	s = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || r == unicode.ReplacementChar {
			return ' '
		}
		return r
	}, s)
	s = strings.Join(strings.Fields(s), " ")
	if len(s) > limit {
		s = strings.ToValidUTF8(s[:limit], "") + "…"
	}
	return s
}
