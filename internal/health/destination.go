package health

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/internal/ingest/received"
	"github.com/auditrelay/auditrelay/internal/retry"
)

const (
	// lookBack is how far back the newest event is searched.
	lookBack = 24 * time.Hour
	// askTimeout bounds a request with its answer.
	askTimeout = 30 * time.Second
	// maxAnswer bounds an answer with one event.
	maxAnswer = 4 << 20
)

// Destination is one destination of an environment's events. It is safe for concurrent use.
type Destination struct {
	client *http.Client
	ask    func(ctx context.Context, now time.Time) (*http.Request, error)
	read   func(answer []byte) (time.Time, error)
}

// DestinationOf returns the foreign destination of a checked environment; nil: there is none, or the
// configuration has no access to it, so its events are not watched.
func DestinationOf(e *config.Environment) (*Destination, error) {
	switch s := e.Stream; {
	case !s.Asked():
		return nil, nil //nolint:nilnil // as documented
	case s.GrafanaLoki != nil:
		return newLoki(s.GrafanaLoki)
	default:
		return newDatadog(s.Datadog)
	}
}

func newDestination(tls *config.TLSClient) (*Destination, error) {
	tlsConfig, err := tls.ClientConfig()
	if err != nil {
		return nil, err
	}
	return &Destination{client: &http.Client{
		Timeout:       askTimeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport: &http.Transport{
			Proxy: http.ProxyFromEnvironment, TLSClientConfig: tlsConfig, ForceAttemptHTTP2: true,
			TLSHandshakeTimeout: askTimeout / 3, IdleConnTimeout: time.Minute, MaxResponseHeaderBytes: 64 << 10,
		},
	}}, nil
}

// Newest returns the time of the newest event of the last 24 hours; zero: there is none.
func (s *Destination) Newest(ctx context.Context) (time.Time, error) {
	req, err := s.ask(ctx, time.Now())
	if err != nil {
		return time.Time{}, err
	}
	res, err := s.client.Do(req)
	if err != nil {
		var failed *url.Error // it repeats the address and the query
		if errors.As(err, &failed) {
			err = failed.Err
		}
		return time.Time{}, fmt.Errorf("ask %s for the newest event: %w", req.URL.Host, err)
	}
	defer func() { _ = res.Body.Close() }() // it was only read
	answer, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer+1))
	switch {
	case res.StatusCode != http.StatusOK:
		return time.Time{}, fmt.Errorf("%s answered %d %s%s", req.URL.Host, res.StatusCode, http.StatusText(res.StatusCode), hints[res.StatusCode])
	case err != nil:
		return time.Time{}, fmt.Errorf("read the answer of %s: %w", req.URL.Host, err)
	case len(answer) > maxAnswer:
		return time.Time{}, fmt.Errorf("the answer of %s has more than %d bytes", req.URL.Host, maxAnswer)
	}
	newest, err := s.read(answer)
	if err != nil {
		return time.Time{}, fmt.Errorf("read the answer of %s: %w", req.URL.Host, err)
	}
	return newest, nil
}

// hints say what to check after an answer with a status.
var hints = map[int]string{
	http.StatusUnauthorized: "; check the credential, and that it may read",
	http.StatusForbidden:    "; check the credential, and that it may read",
	http.StatusBadRequest:   "; check the selector or the search",
	http.StatusNotFound:     "; check the address",
}

// joinPath appends a path to an address.
func joinPath(address, path string) string { return strings.TrimRight(address, "/") + path }

// decodeAnswer reads JSON without showing it in the error.
func decodeAnswer(answer []byte, into any) error {
	if json.Unmarshal(answer, into) != nil {
		return errors.New("it is no JSON of the expected form")
	}
	return nil
}

// newLoki asks a Loki by GET /loki/api/v1/query_range: its newest entry first, and no
// more than one, with an empty line.
func newLoki(c *config.StreamGrafanaLoki) (*Destination, error) {
	s, err := newDestination(c.Query.TLS)
	if err != nil {
		return nil, fmt.Errorf("stream.grafana_loki.query: %w", err)
	}
	username, password := c.Username, c.Password
	if c.Query.Username != "" {
		username, password = c.Query.Username, c.Query.Password
	}
	address, selector, tenant := joinPath(c.QueryAddress(), "/loki/api/v1/query_range"), c.Query.Selector, c.Query.Tenant
	s.ask = func(ctx context.Context, now time.Time) (*http.Request, error) {
		query := url.Values{
			"query": {selector + ` | line_format ""`}, "limit": {"1"}, "direction": {"backward"},
			"start": {strconv.FormatInt(now.Add(-lookBack).UnixNano(), 10)}, "end": {strconv.FormatInt(now.UnixNano(), 10)},
		}
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, address+"?"+query.Encode(), nil)
		if err != nil {
			return nil, errors.New("the address of stream.grafana_loki.query is not valid")
		}
		req.SetBasicAuth(username, password.Reveal())
		if tenant != "" {
			req.Header.Set("X-Scope-OrgID", tenant)
		}
		return req, nil
	}
	s.read = lokiNewest
	return s, nil
}

// lokiNewest finds the newest entry in an answer of streams.
func lokiNewest(answer []byte) (newest time.Time, err error) {
	var a struct {
		Data struct {
			ResultType string `json:"resultType"`
			Result     []struct {
				Values [][]any `json:"values"` // a time in nanoseconds, a line, perhaps more
			} `json:"result"`
		} `json:"data"`
	}
	if err := decodeAnswer(answer, &a); err != nil {
		return time.Time{}, err
	}
	if a.Data.ResultType != "streams" {
		return time.Time{}, errors.New("it has no streams: is the selector one of streams?")
	}
	for _, stream := range a.Data.Result {
		for _, entry := range stream.Values {
			if len(entry) == 0 {
				return time.Time{}, errors.New("an entry has no time")
			}
			text, _ := entry[0].(string)
			ns, err := strconv.ParseInt(text, 10, 64)
			if err != nil {
				return time.Time{}, errors.New("an entry's time is no number of nanoseconds")
			}
			if at := time.Unix(0, ns); at.After(newest) {
				newest = at
			}
		}
	}
	return newest, nil
}

// newDatadog asks Datadog by POST /api/v2/logs/events/search: the newest event first, and
// no more than one. An organisation may search 300 times an hour by default.
func newDatadog(c *config.StreamDatadog) (*Destination, error) {
	s, err := newDestination(nil)
	if err != nil {
		return nil, fmt.Errorf("stream.datadog: %w", err)
	}
	address := joinPath(c.SearchAddress(), "/api/v2/logs/events/search")
	apiKey, applicationKey := c.APIKey, c.ApplicationKey
	body, err := json.Marshal(map[string]any{
		"filter": map[string]any{"query": c.Search, "from": fmt.Sprintf("now-%dh", int(lookBack.Hours())), "to": "now"},
		"sort":   "-timestamp", "page": map[string]any{"limit": 1},
	})
	if err != nil {
		return nil, fmt.Errorf("encode stream.datadog.search: %w", err)
	}
	s.ask = func(ctx context.Context, _ time.Time) (*http.Request, error) {
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, address, bytes.NewReader(body))
		if err != nil {
			return nil, errors.New("the address of stream.datadog.search_url is not valid")
		}
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("DD-API-KEY", apiKey.Reveal())
		req.Header.Set("DD-APPLICATION-KEY", applicationKey.Reveal())
		return req, nil
	}
	s.read = datadogNewest
	return s, nil
}

// datadogNewest finds the newest event in an answer.
func datadogNewest(answer []byte) (newest time.Time, err error) {
	var a struct {
		Data []struct {
			Attributes struct {
				Timestamp time.Time `json:"timestamp"`
			} `json:"attributes"`
		} `json:"data"`
	}
	if err := decodeAnswer(answer, &a); err != nil {
		return time.Time{}, err
	}
	for _, event := range a.Data {
		at := event.Attributes.Timestamp
		if at.IsZero() {
			return time.Time{}, errors.New("an event has no timestamp")
		}
		if at.After(newest) {
			newest = at
		}
	}
	return newest, nil
}

// The time between two looks at one destination, after a good look and after failures.
const (
	askInterval     = 2 * time.Minute
	longestAskPause = 30 * time.Minute
)

// Target is an environment at its destination.
type Target struct {
	Page        *received.Environment
	Destination *Destination
}

// WatchDestinations looks at each target until ctx ends, and writes the newest events into the pages.
func WatchDestinations(ctx context.Context, targets []Target, log *slog.Logger) {
	var all sync.WaitGroup
	for _, t := range targets {
		all.Go(func() { t.watch(ctx, log) })
	}
	all.Wait()
}

func (t Target) watch(ctx context.Context, log *slog.Logger) {
	var failure retry.Failure
	env, wait := t.Page.Name(), askInterval
	log = log.With("project", env.Project, "environment", env.Environment)
	for ctx.Err() == nil {
		began := time.Now()
		newest, err := t.Destination.Newest(ctx)
		switch {
		case err == nil:
			t.Page.Saw(newest, began)
			wait = askInterval
		case ctx.Err() == nil:
			wait = min(2*wait, longestAskPause)
		}
		if ctx.Err() == nil {
			failure.Tell(log, err, "the newest event at the stream's destination is not known; it is asked for again", "the destination's newest event is known again")
		}
		// A tenth of it is random: the looks of many environments spread.
		_ = retry.Sleep(ctx, wait+time.Duration(rand.Int64N(int64(wait)/10))) //nolint:gosec // not for secrets
	}
}
