package admin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"time"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/config/secret"
	"github.com/auditrelay/auditrelay/internal/plaintext"
	"github.com/auditrelay/auditrelay/internal/retry"
)

// HeartbeatOptions configure the calls.
type HeartbeatOptions struct {
	// URL is posted to. Who knows it can keep the alarm quiet, so it is a secret.
	URL secret.Text
	// Every is the time between two calls.
	Every time.Duration
	// Transport makes the connections; see [HeartbeatTransport].
	Transport http.RoundTripper
	// Alive reports whether the relay does its work. No call is made while it does not.
	Alive  func(ctx context.Context) bool
	Logger *slog.Logger
}

const (
	// heartbeatTimeout bounds one beat.
	heartbeatTimeout = 10 * time.Second
	// maxHeartbeatReason bounds the logged text of an error, in characters: it may quote an answer.
	maxHeartbeatReason = 300
)

// HeartbeatTransport makes connections with the TLS of the section, which follow its files. Errors
// name the file.
func HeartbeatTransport(t *config.TLSClient) (http.RoundTripper, error) {
	return t.Transport(&http.Transport{Proxy: http.ProxyFromEnvironment, ForceAttemptHTTP2: true, MaxResponseHeaderBytes: 64 << 10})
}

// Heartbeat calls a dead-man's switch until ctx ends: a service that raises an alarm when the
// calls stop. So a dead or hanging relay, or one that refuses pushes, is noticed, although it can
// tell nobody. A failed beat is not repeated: the next one is due soon.
func Heartbeat(ctx context.Context, o HeartbeatOptions) {
	client := &http.Client{
		Timeout:       heartbeatTimeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport:     o.Transport,
	}
	var failing retry.Failure
	for {
		if o.Alive(ctx) {
			failing.Tell(o.Logger, beat(ctx, client, o.URL), "the heartbeat does not arrive; its receiver will raise an alarm", "the heartbeat arrives again")
		}
		if retry.Sleep(ctx, o.Every) != nil {
			client.CloseIdleConnections()
			return
		}
	}
}

// beat makes one beat. Its errors do not name the URL.
func beat(ctx context.Context, client *http.Client, to secret.Text) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, to.Reveal(), http.NoBody)
	if err != nil {
		return errors.New("heartbeat.url is not an address")
	}
	req.Header.Set("User-Agent", "auditrelay")
	resp, err := client.Do(req)
	if err != nil && ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil {
		var about *url.Error
		if errors.As(err, &about) {
			err = about.Err
		}
		return fmt.Errorf("post to %s: %s", req.URL.Hostname(), plaintext.Line(err.Error(), maxHeartbeatReason))
	}
	defer func() { _ = resp.Body.Close() }() // was only read
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, 4<<10))
	if resp.StatusCode/100 != 2 {
		return fmt.Errorf("post to %s: it answered %d %s", req.URL.Hostname(), resp.StatusCode, http.StatusText(resp.StatusCode))
	}
	return nil
}
