package datadog

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/DataDog/datadog-api-client-go/v2/api/datadog"

	"github.com/auditrelay/auditrelay/internal/retry"
	"github.com/auditrelay/auditrelay/relay"
)

// refusal means that the intake does not take a request because of its content. It may take
// fewer entries, or others.
type refusal struct{ text string }

func (r *refusal) Error() string { return r.text }

// submit sends one request. nil acknowledges all its entries.
func (s *Sink) submit(ctx context.Context, packed []byte) error {
	if ctx.Err() != nil {
		return fmt.Errorf("submit logs: %w", context.Cause(ctx))
	}
	req, err := s.request(ctx, packed)
	if err != nil {
		return fmt.Errorf("submit logs: %w", err)
	}
	res, err := s.api.CallAPI(req)
	if err != nil {
		return fmt.Errorf("submit logs: %w", s.transportError(ctx, err))
	}
	defer func() { _ = res.Body.Close() }()
	answer, err := datadog.ReadBody(res)
	if s.acknowledges(res.StatusCode, err == nil && (len(answer) == 0 || json.Valid(answer))) {
		return nil
	}
	return s.classify(res, s.detailOf(answer))
}

// request makes the request of SubmitLog in Datadog's full client. Its Content-Encoding is set
// last, because PrepareRequest would otherwise compress the body.
func (s *Sink) request(ctx context.Context, packed []byte) (*http.Request, error) {
	base, err := s.api.Cfg.ServerURLWithContext(ctx, "v2.LogsApi.SubmitLog")
	if err != nil {
		return nil, err
	}
	headers := map[string]string{"Content-Type": "application/json", "Accept": "application/json"}
	datadog.SetAuthKeys(ctx, &headers, [2]string{apiKeyAuth, "DD-API-KEY"})
	req, err := s.api.PrepareRequest(ctx, base+"/api/v2/logs", http.MethodPost, packed, headers, url.Values{}, url.Values{}, nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Encoding", s.compressor.encoding)
	return req, nil
}

// acknowledges reports whether an answer acknowledges the entries. Datadog answers 202; other
// servers with its protocol may answer 200, but so may any web server. So 200 counts only from
// an intake that the configuration names, and only if its body is readable: JSON, or empty.
func (s *Sink) acknowledges(status int, readable bool) bool {
	return status == http.StatusAccepted || status == http.StatusOK && s.target.api == "" && readable
}

// classify classifies an answer that does not acknowledge. Unless the answer is known to be
// about the entries, it is retryable: a wrong address or the page of a proxy must not send
// everything to the dead letters.
func (s *Sink) classify(res *http.Response, detail string) error {
	text := fmt.Sprintf("submit logs: %s answered %s%s", s.target.host, statusText(res.StatusCode), detail)
	classed := func(text string) error { return relay.WithClass(errors.New(text), relay.StatusClass(res.StatusCode)) }
	switch status := res.StatusCode; {
	case status == http.StatusBadRequest, status == http.StatusRequestEntityTooLarge:
		return &refusal{text}
	case status == http.StatusUnauthorized, status == http.StatusForbidden:
		return classed(text + ": the API key is not accepted; check api_key; it must be a key of this site")
	case status == http.StatusTooManyRequests:
		return relay.RetryAfter(classed(text), retryAfter(res.Header, s.now(), defaultRetryAfter))
	case status >= 500:
		if d := retryAfter(res.Header, s.now(), 0); d > 0 {
			return relay.RetryAfter(errors.New(text), d)
		}
		return classed(text)
	case status == http.StatusRequestTimeout:
		return classed(text)
	case status < 300:
		return classed(text + ", which is no acknowledgement (202); check that it is a Datadog logs intake")
	default:
		return classed(text + "; check site or url, and whatever stands between")
	}
}

// The wait after a 429 that names none, and the longest wait that is believed.
const (
	defaultRetryAfter = 10 * time.Second
	maxRetryAfter     = time.Hour
)

// retryAfter reads how long to wait: the seconds of X-RateLimit-Reset, or else Retry-After, in
// seconds or as a date.
func retryAfter(h http.Header, now time.Time, otherwise time.Duration) time.Duration {
	for _, name := range []string{"X-RateLimit-Reset", "Retry-After"} {
		if wait, ok := retry.ParseAfter(h.Get(name), now, maxRetryAfter); ok {
			return wait
		}
	}
	return otherwise
}

func statusText(status int) string {
	return strings.TrimSpace(strconv.Itoa(status) + " " + http.StatusText(status))
}

// maxDetail bounds how much of the intake's text about an error is shown.
const maxDetail = 300

// detailOf returns the detail in the intake's structured answer, or nothing, since other
// answers may contain anything.
func (s *Sink) detailOf(answer []byte) string {
	var model struct {
		Errors []struct{ Detail, Title string }
	}
	if json.Unmarshal(answer, &model) != nil || len(model.Errors) == 0 {
		return ""
	}
	text := cmp.Or(model.Errors[0].Detail, model.Errors[0].Title)
	if text == "" {
		return ""
	}
	return fmt.Sprintf(": %.*q", maxDetail, s.scrub(text))
}

// transportError is an error without an answer. What ended the context, such as Close, replaces
// the client's error.
func (s *Sink) transportError(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	var wrapped *url.Error // it repeats the method and the whole address; the host alone is enough
	if errors.As(err, &wrapped) {
		err = wrapped.Err
	}
	if strings.Contains(err.Error(), s.key) {
		return errors.New(s.scrub(err.Error()))
	}
	return fmt.Errorf("%s: %w", s.target.host, err)
}

// scrub removes the key from a text that came from outside.
func (s *Sink) scrub(text string) string { return strings.ReplaceAll(text, s.key, "[redacted]") }
