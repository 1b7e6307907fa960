package management

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/auditrelay/auditrelay/internal/plaintext"
	"github.com/auditrelay/auditrelay/internal/retry"
)

// Receipt comes with every success answer.
type Receipt struct {
	RequestID  string
	StatusCode int // the HTTP status
}

// Answer is a success answer with a resource.
type Answer struct {
	Receipt
	// Raw is the resource's JSON as received. That of a streaming config, and of an answer of
	// undocumented form, has no secrets, and its members are sorted.
	Raw json.RawMessage
	// Note says what the client assumed where the answer had null for a list, or none: that
	// the list is empty, as servers write it in either way. Raw is `[]` then.
	Note string
}

// form is what an answer holds under the name of its resource.
type form int

const (
	object form = iota // or a text
	list               // one that is null or left out is empty
	// whole is for an answer of undocumented form: all of it, where nothing has that name. It has no
	// member with a secret's name.
	whole
)

// fetch makes the call and finds the resource under field in the answer. With an empty field, the
// receipt is the whole answer. An error after a 2xx comes with the receipt: a write has had its
// effect then.
func (c *Client) fetch(ctx context.Context, k call, field string, as form) (a Answer, err error) {
	k.scrub = cmp.Or(k.scrub, c.scrub)
	r, err := c.send(ctx, k)
	if err != nil {
		return a, err
	}
	members, receipt, err := r.members(k.scrub)
	if a.Receipt = receipt; err == nil {
		err = a.find(members, r.body, field, as)
	}
	if err != nil {
		return a, fmt.Errorf("%s: %w", k.operation, k.scrub.cleanError(err))
	}
	a.Raw = k.scrub.cleanRaw(a.Raw)
	return a, nil
}

// find takes the resource out of an answer. An empty field names nothing in it.
func (a *Answer) find(members map[string]json.RawMessage, body []byte, field string, as form) (err error) {
	raw, ok := members[field]
	ok = ok && field != ""
	switch {
	case as == whole && !ok:
		raw = body
	case as == list:
		if a.Note = emptyList(members, a.Receipt, field); a.Note != "" {
			raw, ok = json.RawMessage("[]"), true
		}
	}
	switch {
	case as == whole && len(raw) > 0:
		a.Raw, err = redact(raw)
		return err
	case ok:
		a.Raw = raw
	case as != whole && field != "":
		return &noResource{a.Receipt, field}
	}
	return nil
}

// emptyList says why an answer's list counts as empty; "" where it does not. A list may be
// left out only of an answer with a request_id, as each of the API's answers has one: an
// empty object, of a proxy or a broken server, says nothing.
func emptyList(members map[string]json.RawMessage, receipt Receipt, field string) string {
	status, given := members["status_code"]
	had := ""
	switch raw, ok := members[field]; {
	case ok && string(raw) == "null":
		had = "null for"
	case !ok && receipt.RequestID != "" && (!given || string(status) == strconv.Itoa(receipt.StatusCode)):
		had = "no"
	default:
		return ""
	}
	return fmt.Sprintf("the API's answer had %s %s: it is taken for an empty list", had, field)
}

// members splits the answer's object. An empty body is an empty object: any 2xx is a
// success, also 204.
func (r reply) members(scrub *scrubber) (map[string]json.RawMessage, Receipt, error) {
	receipt := Receipt{StatusCode: r.status}
	if len(r.body) == 0 {
		return nil, receipt, nil
	}
	var members map[string]json.RawMessage
	if err := json.Unmarshal(r.body, &members); err != nil {
		return nil, receipt, fmt.Errorf("decode the answer: %w", err)
	}
	receipt.RequestID = plaintext.Line(scrub.clean(errorBody(members).text("request_id")), maxErrorText)
	return members, receipt, nil
}

var (
	// ErrNoResource means a 2xx answer without the resource asked for.
	ErrNoResource = errors.New("the answer holds no such resource")
	// ErrNotSent marks the error of a call of which nothing was sent: it had no effect.
	ErrNotSent = errors.New("nothing was sent")
	// ErrAnswerTooLarge means an answer longer than Options.MaxAnswerBytes.
	ErrAnswerTooLarge = errors.New("the answer is too large")
)

// marked is an error that is another one, too, whose text it does not show.
type marked struct {
	error
	mark error
}

func (e marked) Unwrap() error        { return e.error }
func (e marked) Is(target error) bool { return target == e.mark }

// noResource is the error of a 2xx without the resource asked for.
type noResource struct {
	Receipt
	field string
}

func (e *noResource) Error() string        { return ErrNoResource.Error() + ": " + e.field }
func (e *noResource) Is(target error) bool { return target == ErrNoResource }

// maxErrorText bounds each text of an error, in characters.
const maxErrorText = 500

// longestRetryAfter bounds the wait of a Retry-After header. A server, or a proxy before it,
// with a wrong date or a lie must not blind the relay for long; an hour is the longest
// window of a rate limit seen in practice. After it, one request asks again.
const longestRetryAfter = time.Hour

// APIError is an answer other than 2xx; errors.As finds it. Its texts are the API's own,
// without the secrets known to the client.
type APIError struct {
	// Status is the HTTP status.
	Status int
	// RequestID, Type, Message and URL are the body's request_id, error_type,
	// error_message and error_url. For any other body, Message holds the beginning of its
	// text, and the rest may be empty.
	RequestID string
	Type      string
	Message   string
	URL       string
	// RetryAfter is the wait asked for by the Retry-After header; 0 without one.
	RetryAfter time.Duration

	afterLost bool // an earlier attempt had no answer
}

// Refused reports whether the call certainly had no effect: the API refused it, and every
// earlier attempt of it.
func (e *APIError) Refused() bool { return e.Status >= 400 && e.Status < 500 && !e.afterLost }

// holds is how long the API asks this caller not to send anything: a 429 is about the
// caller, and not about the call. The Retry-After of another status is an estimate: a short
// one delays the repetition of the call, and a long one leaves the call unrepeated.
func (e *APIError) holds() time.Duration {
	if e.Status != http.StatusTooManyRequests {
		return 0
	}
	return e.RetryAfter
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
	if e.RetryAfter > patience {
		fmt.Fprintf(&b, ", and asks to wait %s", e.RetryAfter)
	}
	return b.String()
}

// IsNotFound reports whether err is, or wraps, a 404. It does not prove anything missing:
// see [Client.Confirm].
func IsNotFound(err error) bool { return answered(err).Status == http.StatusNotFound }

// IsDenied reports whether err is, or wraps, an answer denying the key something.
func IsDenied(err error) bool {
	return isUnauthorized(err) || answered(err).Status == http.StatusForbidden
}

func isUnauthorized(err error) bool { return answered(err).Status == http.StatusUnauthorized }

// RequestOf is the request id of the answer that err is, or wraps; empty without one.
func RequestOf(err error) string { return answered(err).RequestID }

// answered is the API's answer that err is, or wraps; an empty one without any.
func answered(err error) APIError {
	var e *APIError
	if !errors.As(err, &e) {
		return APIError{}
	}
	return *e
}

// errorBody is the document's error body. Its members are decoded one by one: a proxy's
// error page may use the same names with other types.
type errorBody map[string]json.RawMessage

func (b errorBody) text(name string) string {
	var s string
	if json.Unmarshal(b[name], &s) != nil {
		return ""
	}
	return s
}

// newAPIError makes an error of an answer and the beginning of its body.
func newAPIError(resp *http.Response, body []byte, scrub *scrubber) *APIError {
	clean := func(s string) string { return plaintext.Line(scrub.clean(s), maxErrorText) }
	e := &APIError{Status: resp.StatusCode}
	e.RetryAfter, _ = retry.After(resp.Header, longestRetryAfter) // 0 if unreadable
	var b errorBody
	if json.Unmarshal(body, &b) != nil {
		e.Message = clean(string(body))
	} else {
		e.RequestID, e.Type = clean(b.text("request_id")), clean(b.text("error_type"))
		e.Message, e.URL = clean(b.text("error_message")), clean(b.text("error_url"))
	}
	if to, err := resp.Location(); err == nil && e.Status < 400 && (to.Host != resp.Request.URL.Host || to.Scheme != resp.Request.URL.Scheme) {
		e.Message = clean(fmt.Sprintf("it redirects to %s://%s, where the key is not sent: correct workspace.base_url", to.Scheme, to.Host))
	}
	e.Message = cmp.Or(e.Message, http.StatusText(e.Status))
	return e
}

// disguised is the error that a false 2xx hides: a gateway may answer 200 to everything, and
// a proxy may answer a read with a page of its own. A write with an answer of unknown
// form has had its effect.
func disguised(k call, resp *http.Response, body []byte) error {
	body = bytes.TrimSpace(body)
	if err := errorWithin(k, resp, body); err != nil {
		return err
	}
	if k.method != http.MethodGet || len(body) == 0 || body[0] == '{' {
		return nil
	}
	page := plaintext.Line(k.scrub.clean(string(body[:min(len(body), errorBytes)])), 80)
	return fmt.Errorf("something other than the API answered (HTTP %d, %q, beginning with %q); check workspace.base_url, and any proxy before it",
		resp.StatusCode, plaintext.Line(k.scrub.clean(resp.Header.Get("Content-Type")), 80), page)
}

// errorWithin is the error in a 2xx's body, which has an error_type or the status_code of an error;
// nil: it is none. Its status_code counts, else 500.
func errorWithin(k call, resp *http.Response, body []byte) error {
	var b errorBody
	_ = json.Unmarshal(body, &b) // then it has neither; the decoder of the resource tells of it
	var status int
	failed := json.Unmarshal(b["status_code"], &status) == nil && status >= 400 && status <= 599
	if !failed && b.text("error_type") == "" {
		return nil
	}
	if !failed {
		status = http.StatusInternalServerError
	}
	as := *resp
	as.StatusCode = status
	return newAPIError(&as, body, k.scrub)
}
