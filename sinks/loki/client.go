package loki

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/grafana/loki-client-go/pkg/urlutil"
	promconfig "github.com/prometheus/common/config"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/config/secret"
)

// maxAnswer bounds how much of an answer is read, in bytes. Loki writes a line for each kind of
// refusal, some 700 kB for a full push.
const maxAnswer = 1 << 20

// connect makes the client, without dialing. It is built from the configuration of
// loki-client-go. The package loki of that module is not imported: its Client drops entries or
// waits for them forever, and it links the package testing, and metrics of its own, into every
// program that imports it.
func (s *Sink) connect(cfg config.Loki) error {
	var u urlutil.URLValue
	if err := u.Set(cfg.URL); err != nil {
		return errors.New("url: it is not an address") // the error may hold a password
	}
	s.url = u.URL
	// Redirects are not followed, since they could take the events elsewhere.
	c := promconfig.HTTPClientConfig{ProxyConfig: promconfig.ProxyConfig{ProxyFromEnvironment: true}}
	if cfg.Username != "" {
		c.BasicAuth = &promconfig.BasicAuth{Username: cfg.Username, Password: promconfig.Secret(cfg.Password.Reveal())}
	}
	if !cfg.BearerToken.Empty() {
		c.Authorization = &promconfig.Authorization{Type: "Bearer", Credentials: promconfig.Secret(cfg.BearerToken.Reveal())}
	}
	if err := c.Validate(); err != nil {
		return fmt.Errorf("username, password and bearer_token: %w", err)
	}
	security := func(context.Context, *promconfig.TLSConfig, ...promconfig.TLSConfigOption) (*tls.Config, error) {
		return cfg.TLS.ClientConfig()
	}
	// With HTTP/1, a request that is cancelled is not sent any further.
	client, err := promconfig.NewClientFromConfig(c, "auditrelay",
		promconfig.WithHTTP2Disabled(), promconfig.WithUserAgent("auditrelay"), promconfig.WithNewTLSConfigFunc(security))
	if err != nil {
		return fmt.Errorf("tls: %w", err)
	}
	s.client, s.hide = client, hiding(cfg)
	return nil
}

// hiding replaces the credentials, in case a peer repeats them.
func hiding(cfg config.Loki) *strings.Replacer {
	basic := base64.StdEncoding.EncodeToString([]byte(cfg.Username + ":" + cfg.Password.Reveal()))
	return secret.Hide(1, cfg.Password.Reveal(), cfg.BearerToken.Reveal(), basic)
}

// answer is an answer of Loki.
type answer struct {
	status int
	header http.Header
	text   string
	cut    bool              // it was longer than what was read
	hide   *strings.Replacer // removes credentials from messages
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
	if tenant != "" {
		r.Header.Set("X-Scope-OrgID", tenant)
	}
	res, err := s.client.Do(r)
	if err != nil {
		return nil, s.unreachable(r.Context(), err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer+1))
	if err != nil && res.StatusCode/100 != 2 {
		return nil, s.unreachable(r.Context(), err)
	}
	a := &answer{status: res.StatusCode, header: res.Header, cut: len(text) > maxAnswer, hide: s.hide}
	a.text = strings.ToValidUTF8(string(text[:min(len(text), maxAnswer)]), "?")
	return a, nil
}

// unreachable says why there is no answer. Everything that was sent may have arrived.
func (s *Sink) unreachable(ctx context.Context, err error) error {
	var wrapped *url.Error
	if errors.As(err, &wrapped) {
		err = wrapped.Err
	}
	if cause := context.Cause(ctx); cause != nil {
		err = cause
	}
	return fmt.Errorf("reach Loki at %s: %w", s.url.Host, err)
}
