package health

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/auditrelay/auditrelay/config"
)

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
