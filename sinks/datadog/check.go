package datadog

import (
	"context"
	"fmt"
	"io"
	"net/http"
)

// Check implements relay.Checker. It asks the intake for its page in the way in which a
// delivery would reach it, proxy and all, and writes nothing. It asks a Datadog site whether
// the key is valid.
func (s *Sink) Check(ctx context.Context, report func(what, found string)) error {
	ctx, cancel := s.until(ctx)
	defer cancel()
	status, err := s.get(ctx, s.target.scheme+"://"+s.target.host+"/")
	if err != nil {
		return fmt.Errorf("reach the intake: %w; check site or url, the network, and the proxy in the environment", err)
	}
	if status >= 500 {
		return fmt.Errorf("reach the intake: %s answered %s", s.target.host, statusText(status))
	}
	report("intake", s.target.host+" answers")
	report("limits", fmt.Sprintf("%d entries and %d bytes a request, %d bytes an entry, %v old or %v ahead",
		maxEntries, maxRequestBytes, maxEntryBytes, maxAge, maxAhead))
	if s.target.api == "" {
		report("api key", "not checked: only Datadog's own sites can be asked without writing")
		return nil
	}
	if status, err = s.get(ctx, s.target.api+"/api/v1/validate"); err != nil {
		return fmt.Errorf("validate the API key: %w", err)
	}
	switch status {
	case http.StatusOK:
		report("api key", "valid")
		return nil
	case http.StatusUnauthorized, http.StatusForbidden:
		return fmt.Errorf("validate the API key: %s answered %s: check api_key; it must be a key of this site",
			s.target.api, statusText(status))
	default:
		return fmt.Errorf("validate the API key: %s answered %s", s.target.api, statusText(status))
	}
}

// get asks for an address with the key, and returns the answer's status.
func (s *Sink) get(ctx context.Context, address string) (int, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return 0, err
	}
	req.Header.Set("User-Agent", userAgent)
	req.Header.Set("DD-API-KEY", s.key)
	res, err := s.client.Do(req)
	if err != nil {
		return 0, s.transportError(ctx, err)
	}
	_, _ = io.Copy(io.Discard, res.Body)
	return res.StatusCode, res.Body.Close()
}
