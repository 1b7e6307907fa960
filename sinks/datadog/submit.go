package datadog

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"

	"github.com/DataDog/datadog-api-client-go/v2/api/datadog"

	"github.com/auditrelay/auditrelay/internal/httpsink"
)

// refusal means that the intake does not take a request because of its content. It may take
// fewer entries, or others.
type refusal struct{ text string }

func (r *refusal) Error() string { return r.text }

// submit sends one request. nil acknowledges all its entries.
func (s *Sink) submit(ctx context.Context, packed []byte) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	req, err := s.request(ctx, packed)
	if err != nil {
		return fmt.Errorf("make the request: %w", s.client.Clean(err))
	}
	answer, err := s.client.Do(req)
	if err != nil {
		return err
	}
	return s.judge(answer)
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
// an intake that the configuration names, and only if its body is readable: JSON, or empty. A body
// that tells of an error acknowledges nothing.
func (s *Sink) acknowledges(a *httpsink.Answer) bool {
	readable := !a.Cut && !a.Broken && (a.Text == "" || json.Valid([]byte(a.Text)))
	return !a.Denies() && (a.Status == http.StatusAccepted || a.Status == http.StatusOK && s.target.api == "" && readable)
}

// judge classifies an answer. Unless it is known to be about the entries, it is retryable: a wrong
// address or the page of a proxy must not send everything to the dead letters.
func (s *Sink) judge(a *httpsink.Answer) error {
	if s.acknowledges(a) {
		return nil
	}
	remedy := ""
	switch {
	case a.Status < 300 && a.Denies():
		remedy = "its body tells of an error, so it acknowledges nothing"
	case a.Status < 300:
		remedy = "this is no acknowledgement (202); check that it is a Datadog logs intake"
	case a.Status == http.StatusTooManyRequests:
		reset := a.Header.Get("X-RateLimit-Reset")
		if _, err := strconv.Atoi(reset); err == nil {
			a.Header.Set("Retry-After", reset) // in seconds, too
		}
	}
	err := a.Err(detailOf(a.Text), remedy)
	if a.Status == http.StatusBadRequest && !a.IsPage() || a.Status == http.StatusRequestEntityTooLarge {
		return &refusal{err.Error()}
	}
	return err
}

// detailOf returns the detail in the intake's structured answer, or nothing, since other
// answers may contain anything.
func detailOf(answer string) string {
	var model struct {
		Errors []struct{ Detail, Title string }
	}
	if json.Unmarshal([]byte(answer), &model) != nil || len(model.Errors) == 0 {
		return ""
	}
	return cmp.Or(model.Errors[0].Detail, model.Errors[0].Title)
}
