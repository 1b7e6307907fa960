package workspacesim

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"time"
)

// apiError is an error body of the document, still without a request id.
type apiError struct {
	status     int
	kind       string // error_type
	message    string // error_message
	retryAfter time.Duration
	allow      string // the Allow header of a 405
}

func badRequest(format string, args ...any) *apiError {
	return &apiError{status: http.StatusBadRequest, kind: "bad_request", message: fmt.Sprintf(format, args...)}
}

func notFound(kind, format string, args ...any) *apiError {
	return &apiError{status: http.StatusNotFound, kind: kind, message: fmt.Sprintf(format, args...)}
}

// errorFor is the error of a status, in the document's words if it has any.
func errorFor(status int) *apiError {
	e := &apiError{status: status, kind: "error_" + strconv.Itoa(status), message: http.StatusText(status) + "."}
	switch status {
	case http.StatusUnauthorized:
		e.kind, e.message = "unauthorized_credentials", "Unauthorized credentials."
	case http.StatusTooManyRequests:
		e.kind, e.message = "too_many_requests", "Too many requests have been made."
	case http.StatusInternalServerError:
		e.kind = "internal_server_error"
		e.message = "Oops, something seems to have gone wrong, please reach out to support@workspace.example."
	case http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		e.kind, e.message = "service_unavailable", "The service is unavailable."
	}
	return e
}

// answer is a response, ready to be sent.
type answer struct {
	status int
	header http.Header
	body   []byte
}

// success adds request_id and status_code to fields.
func (s *Simulator) success(fields map[string]any) *answer {
	body := map[string]any{"request_id": s.nextRequestID(), "status_code": http.StatusOK}
	for name, v := range fields {
		body[name] = v
	}
	return encode(http.StatusOK, body)
}

// failure gives e the document's error shape.
func (s *Simulator) failure(e *apiError) *answer {
	a := encode(e.status, map[string]any{
		"status_code":   e.status,
		"request_id":    s.nextRequestID(),
		"error_type":    e.kind,
		"error_message": e.message,
		"error_url":     fmt.Sprintf("%s/api/errors/%d", s.opts.DocsURL, e.status),
	})
	if e.allow != "" {
		a.header.Set("Allow", e.allow)
	}
	if e.status == http.StatusUnauthorized {
		a.header.Set("WWW-Authenticate", `Basic realm="workspace management"`)
	}
	if e.retryAfter > 0 {
		seconds := (e.retryAfter + time.Second - 1) / time.Second
		a.header.Set("Retry-After", strconv.Itoa(int(seconds)))
	}
	return a
}

func encode(status int, v any) *answer {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		panic("workspacesim: a resource that is not JSON: " + err.Error())
	}
	return &answer{status: status, header: http.Header{"Content-Type": {"application/json"}}, body: b.Bytes()}
}

// write sends a. With cut it breaks the connection halfway through the body.
func (a *answer) write(w http.ResponseWriter, cut bool) {
	h := w.Header()
	for name, v := range a.header {
		h[name] = v
	}
	h.Set("Content-Length", strconv.Itoa(len(a.body)))
	w.WriteHeader(a.status)
	if !cut {
		_, _ = w.Write(a.body) // the client may be gone
		return
	}
	_, _ = w.Write(a.body[:len(a.body)/2])
	_ = http.NewResponseController(w).Flush()
	panic(http.ErrAbortHandler)
}

// nextRequestID is unique within a simulator: mix is a bijection of the count.
func (s *Simulator) nextRequestID() string {
	n := s.requests.Add(1)
	return "request-id-" + uuid(mix(n^s.opts.Seed), mix(n))
}
