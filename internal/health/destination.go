package health

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/auditrelay/auditrelay/config"
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
		return time.Time{}, &refusedAnswer{req.URL.Host, res.StatusCode}
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

// refusedAnswer is an answer with another status than 200.
type refusedAnswer struct {
	host   string
	status int
}

func (r *refusedAnswer) Error() string {
	hint := ""
	switch r.status {
	case http.StatusUnauthorized, http.StatusForbidden:
		hint = "; check the credential, and that it may read"
	case http.StatusBadRequest:
		hint = "; check the selector or the search"
	case http.StatusNotFound:
		hint = "; check the address"
	}
	return fmt.Sprintf("%s answered %d %s%s", r.host, r.status, http.StatusText(r.status), hint)
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
