package datadog

import (
	"context"
	"fmt"
	"net/http"

	"github.com/auditrelay/auditrelay/internal/httpsink"
)

// Check implements relay.Checker. It asks the intake for its page in the way in which a
// delivery would reach it, proxy and all, and writes nothing. It asks a Datadog site whether
// the key is valid.
func (s *Sink) Check(ctx context.Context, report func(what, found string)) error {
	ctx, cancel := s.client.Until(ctx)
	defer cancel()
	a, err := s.get(ctx, s.target.url.Scheme+"://"+s.target.url.Host+"/")
	if err != nil {
		return fmt.Errorf("reach the intake: %w; check site or url, the network, and the proxy in the environment", err)
	}
	if a.Status >= 500 {
		return fmt.Errorf("reach the intake: %w", a.Err("", ""))
	}
	report("intake", s.target.url.Host+" answers")
	report("limits", fmt.Sprintf("%d entries and %d bytes a request, %d bytes an entry, %v old or %v ahead",
		maxEntries, maxRequestBytes, maxEntryBytes, maxAge, maxAhead))
	if s.target.api == "" {
		report("api key", "not checked: only Datadog's own sites can be asked without writing")
		return nil
	}
	if a, err = s.get(ctx, s.target.api+"/api/v1/validate"); err != nil {
		return fmt.Errorf("validate the API key: %w", err)
	}
	if a.Status != http.StatusOK {
		return fmt.Errorf("validate the API key: %w", a.Err("", ""))
	}
	report("api key", "valid")
	return nil
}

// get asks for an address with the key.
func (s *Sink) get(ctx context.Context, address string) (*httpsink.Answer, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("DD-API-KEY", s.key)
	return s.client.Do(req)
}
