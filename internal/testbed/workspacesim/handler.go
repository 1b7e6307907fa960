package workspacesim

import (
	"errors"
	"io"
	"log/slog"
	"mime"
	"net/http"
	"net/url"
	"time"

	"github.com/auditrelay/auditrelay/internal/retry"
)

// maxBody bounds a request's body, in bytes.
const maxBody = 256 << 10

// call is one request to an operation.
type call struct {
	params map[string]string
	query  url.Values
	body   *object // nil if the operation takes none
}

// Handler serves the API, and nothing else.
func (s *Simulator) Handler() http.Handler { return http.HandlerFunc(s.serve) }

func (s *Simulator) serve(w http.ResponseWriter, r *http.Request) {
	start := time.Now()
	f := s.faults.draw(r.URL.Path)
	if f.latency > 0 && retry.Sleep(r.Context(), f.latency) != nil {
		panic(http.ErrAbortHandler)
	}
	if f.cutBefore {
		panic(http.ErrAbortHandler)
	}
	a := s.respond(w, r, f)
	s.log.Debug("api request", slog.String("method", r.Method), slog.String("path", r.URL.Path),
		slog.Int("status", a.status), slog.Duration("took", time.Since(start)))
	if f.cutAfter {
		panic(http.ErrAbortHandler)
	}
	a.write(w, f.cutMidway)
}

// respond checks a request from the outside in: credentials, rate, path,
// method, body, and then the operation itself.
func (s *Simulator) respond(w http.ResponseWriter, r *http.Request, f fault) *answer {
	second := isSecondAPI(r.URL.Path)
	if second && !isProjectKey(r) || !second && !s.authorized(r) {
		return s.failure(errorFor(http.StatusUnauthorized))
	}
	if second && s.tooMany(r.URL.Path) {
		return s.failure(errorFor(http.StatusTooManyRequests))
	}
	if wait := s.limiter.wait(); wait > 0 {
		e := errorFor(http.StatusTooManyRequests)
		e.retryAfter = wait
		return s.failure(e)
	}
	if f.status != 0 {
		e := errorFor(f.status)
		e.retryAfter = f.retryAfter
		return s.failure(e)
	}
	op, params, fail := route(r.Method, r.URL.EscapedPath())
	if fail != nil {
		return s.failure(fail)
	}
	c := &call{params: params, query: r.URL.Query()}
	if c.body, fail = readBody(w, r, op.body); fail != nil {
		return s.failure(fail)
	}
	return s.perform(op, c)
}

// perform runs op on the state, one operation at a time.
func (s *Simulator) perform(op *operation, c *call) *answer {
	s.mu.Lock()
	defer s.mu.Unlock()
	fields, fail := op.handle(s, c)
	if fail != nil {
		return s.failure(fail)
	}
	return s.success(fields)
}

// authorized compares both halves in constant time, whatever the first comparison says.
func (s *Simulator) authorized(r *http.Request) bool {
	id, password, _ := r.BasicAuth()
	okID := s.keyID.Equal(id)
	okSecret := s.opts.Secret.Equal(password)
	return okID && okSecret
}

// readBody reads the JSON object of an operation. For an operation without one, it
// refuses any body.
func readBody(w http.ResponseWriter, r *http.Request, wanted bool) (*object, *apiError) {
	raw, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		return nil, &apiError{
			status: http.StatusRequestEntityTooLarge, kind: "request_too_large",
			message: "The body is larger than 256 KiB.",
		}
	case err != nil:
		return nil, badRequest("The body could not be read.")
	case !wanted && len(raw) > 0:
		return nil, badRequest("The operation takes no body.")
	case !wanted:
		return nil, nil
	}
	if t := r.Header.Get("Content-Type"); t != "" && !isJSON(t) {
		return nil, &apiError{
			status: http.StatusUnsupportedMediaType, kind: "unsupported_media_type",
			message: "The Content-Type must be application/json.",
		}
	}
	o, err := parseBody(raw)
	if err != nil {
		return nil, badRequest("%s.", err)
	}
	return o, nil
}

func isJSON(contentType string) bool {
	t, _, err := mime.ParseMediaType(contentType)
	return err == nil && t == "application/json"
}
