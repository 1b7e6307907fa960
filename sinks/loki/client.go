package loki

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"

	"github.com/grafana/loki-client-go/loki"
	promconfig "github.com/prometheus/common/config"

	"github.com/auditrelay/auditrelay/config"
)

// maxAnswer bounds what is read of an answer, in bytes. Loki writes a line for
// each kind of refusal, which for a full push is some 700 kB.
const maxAnswer = 1 << 20

// connect makes the client. It dials nothing. Of loki-client-go it takes the
// configuration and the client that this describes; its Client would give up
// on entries, or wait for them without an end.
func (s *Sink) connect(cfg config.Loki) error {
	c, err := loki.NewDefaultConfig(cfg.URL)
	if err != nil || c.URL.URL == nil || c.URL.Hostname() == "" || c.URL.User != nil {
		return errors.New("url: it must be the push endpoint, such as https://loki.example.com/loki/api/v1/push, without user and password")
	}
	if c.URL.Scheme != "https" && (c.URL.Scheme != "http" || !isLoopback(c.URL.Hostname())) {
		return fmt.Errorf("url: %s must be https; http is for loopback only", c.URL.Redacted())
	}
	s.url = c.URL.URL
	c.Client.ProxyFromEnvironment = true
	c.Client.FollowRedirects = false // they could take the events elsewhere
	if cfg.Username != "" {
		c.Client.BasicAuth = &promconfig.BasicAuth{Username: cfg.Username, Password: promconfig.Secret(cfg.Password.Reveal())}
	}
	if !cfg.BearerToken.Empty() {
		c.Client.Authorization = &promconfig.Authorization{Type: "Bearer", Credentials: promconfig.Secret(cfg.BearerToken.Reveal())}
	}
	if err := c.Client.Validate(); err != nil {
		return fmt.Errorf("username, password and bearer_token: %w", err)
	}
	security := func(context.Context, *promconfig.TLSConfig, ...promconfig.TLSConfigOption) (*tls.Config, error) {
		return cfg.TLS.ClientConfig()
	}
	// Over HTTP/1, what is cancelled is not sent any further.
	s.client, err = promconfig.NewClientFromConfig(c.Client, "auditrelay",
		promconfig.WithHTTP2Disabled(), promconfig.WithUserAgent("auditrelay"), promconfig.WithNewTLSConfigFunc(security))
	if err != nil {
		return fmt.Errorf("tls: %w", err)
	}
	s.hide = hiding(cfg)
	return nil
}

func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// hiding replaces the credentials, in case a peer says them.
func hiding(cfg config.Loki) *strings.Replacer {
	var pairs []string
	for _, secret := range []string{
		cfg.Password.Reveal(), cfg.BearerToken.Reveal(),
		base64.StdEncoding.EncodeToString([]byte(cfg.Username + ":" + cfg.Password.Reveal())),
	} {
		if secret != "" {
			pairs = append(pairs, secret, "***")
		}
	}
	return strings.NewReplacer(pairs...)
}

// answer is what Loki said.
type answer struct {
	status int
	header http.Header
	text   string
	cut    bool // there was more
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
	a := &answer{status: res.StatusCode, header: res.Header, cut: len(text) > maxAnswer}
	a.text = s.hide.Replace(strings.ToValidUTF8(string(text[:min(len(text), maxAnswer)]), "?"))
	return a, nil
}

// unreachable says why there is no answer. What was sent may have arrived.
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
