package workspacesim

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/auditrelay/auditrelay/config/secret"
)

// target is an environment's destination. It is never changed.
type target struct {
	kind     string // destination type
	url      string // empty if there is no way to it
	username string
	password secret.Text
	apiKey   secret.Text
}

// targetOf is nil if c streams nothing, or f lets it.
func (s *Simulator) targetOf(c *streamingConfig, f StreamFaults) *target {
	if c == nil || f.Silent || c.status != StatusActive && !f.PushInactive {
		return nil
	}
	password, apiKey := c.password, c.apiKey
	if !f.Secret.Empty() {
		password, apiKey = f.Secret, f.Secret
	}
	if c.destinationType == typeDatadog {
		t := &target{kind: typeDatadog, apiKey: apiKey}
		if base := s.opts.DatadogSites[c.site]; base != "" {
			t.url = strings.TrimSuffix(base, "/") + "/api/v2/logs"
		}
		return t
	}
	u := url.URL{Scheme: "https", Host: c.hostname, Path: "/loki/api/v1/push"}
	if s.isLocal(c.hostname) {
		u.Scheme = "http"
	}
	if strings.Count(u.Host, ":") > 1 && !strings.HasPrefix(u.Host, "[") {
		u.Host = "[" + u.Host + "]"
	}
	return &target{kind: typeLoki, url: u.String(), username: c.username, password: password}
}

// pusherClient sends pushes.
type pusherClient struct {
	http    *http.Client
	timeout time.Duration
}

func newPusherClient(o *Options) *pusherClient {
	dial := o.Dial
	if dial == nil {
		dial = (&net.Dialer{Timeout: o.PushTimeout, KeepAlive: 30 * time.Second}).DialContext
	}
	t := &http.Transport{
		DialContext:         dial,
		TLSClientConfig:     o.TLS,
		MaxIdleConnsPerHost: 64,
		IdleConnTimeout:     time.Minute,
		DisableCompression:  true,
		WriteBufferSize:     64 << 10,
	}
	noRedirect := func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &pusherClient{http: &http.Client{Transport: t, CheckRedirect: noRedirect}, timeout: o.PushTimeout}
}

func (p *pusherClient) close() { p.http.CloseIdleConnections() }

// result is the result of one attempt.
type result struct {
	status     int // 0 without an answer
	err        error
	retryAfter time.Duration
}

func (r result) acknowledged() bool { return r.status/100 == 2 }

// refused reports whether trying again is useless.
func (r result) refused() bool {
	return r.status/100 == 4 && r.status != http.StatusTooManyRequests && r.status != http.StatusRequestTimeout
}

// send is one attempt to push b to t.
func (p *pusherClient) send(ctx context.Context, t *target, b *bodyBuffer) result {
	ctx, cancel := context.WithTimeout(ctx, p.timeout)
	defer cancel()
	if t.url == "" {
		return result{err: fmt.Errorf("push to %s: the site has no address here", t.kind)}
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, t.url, http.NoBody)
	if err != nil {
		return result{err: fmt.Errorf("push to %s: %w", t.kind, err)}
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("User-Agent", "event-log-streaming/1.0")
	if t.kind == typeDatadog {
		req.Header.Set("DD-API-KEY", t.apiKey.Reveal())
	} else {
		req.SetBasicAuth(t.username, t.password.Reveal())
	}
	if b.gzipped {
		req.Header.Set("Content-Encoding", "gzip")
	}
	req.Body, req.ContentLength = b.reader()
	resp, err := p.http.Do(req)
	if err != nil {
		return result{err: fmt.Errorf("push to %s: %w", t.kind, err)}
	}
	defer func() { _ = resp.Body.Close() }()
	return readResult(resp)
}

// readResult reads an answer, and of its body only enough to reuse the connection.
func readResult(resp *http.Response) result {
	const keep, most = 200, 64 << 10
	r := result{status: resp.StatusCode}
	said, _ := io.ReadAll(io.LimitReader(resp.Body, keep))
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, most))
	if !r.acknowledged() {
		r.err = fmt.Errorf("destination answered %s: %s", resp.Status, strings.TrimSpace(string(said)))
	}
	if seconds, err := strconv.Atoi(resp.Header.Get("Retry-After")); err == nil && seconds > 0 {
		r.retryAfter = min(time.Duration(seconds)*time.Second, time.Minute)
	}
	return r
}
