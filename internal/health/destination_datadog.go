package health

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/auditrelay/auditrelay/config"
)

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
