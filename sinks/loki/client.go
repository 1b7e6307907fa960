package loki

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"

	"github.com/grafana/loki-client-go/pkg/urlutil"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/config/secret"
	"github.com/auditrelay/auditrelay/internal/httpsink"
)

// connect makes the client, without dialing. The package loki of loki-client-go is not imported:
// its Client drops entries or waits for them forever, and it links the package testing, and
// metrics of its own, into every program that imports it.
func (s *Sink) connect(cfg config.Loki) (err error) {
	var u urlutil.URLValue
	if err := u.Set(cfg.URL); err != nil {
		return errors.New("url: it is not an address") // the error may hold a password
	}
	s.url = u.URL
	basic := base64.StdEncoding.EncodeToString([]byte(cfg.Username + ":" + cfg.Password.Reveal()))
	switch {
	case cfg.Username != "":
		s.credential = "Basic " + basic
	case !cfg.BearerToken.Empty():
		s.credential = "Bearer " + cfg.BearerToken.Reveal()
	}
	s.client, err = httpsink.New(httpsink.Options{
		Target: u.URL, TLS: cfg.TLS, HTTP1: true,
		Hide:       secret.Hide(1, cfg.Password.Reveal(), cfg.BearerToken.Reveal(), basic),
		Credential: "check username and password or bearer_token, and whether they may write to this tenant",
		Address:    "check url: it must be the push endpoint, ending in " + pushPath,
	})
	return err
}

// push posts a body to the push endpoint.
func (s *Sink) push(ctx context.Context, tenant string, body []byte) (*answer, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url.String(), bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("make a push: %w", err)
	}
	r.Header.Set("Content-Type", "application/x-protobuf")
	return s.do(r, tenant)
}

func (s *Sink) do(r *http.Request, tenant string) (*answer, error) {
	if s.credential != "" {
		r.Header.Set("Authorization", s.credential)
	}
	if tenant != "" {
		r.Header.Set("X-Scope-OrgID", tenant)
	}
	a, err := s.client.Do(r)
	if err != nil {
		return nil, err
	}
	return &answer{a}, nil
}
