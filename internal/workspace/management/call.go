package management

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/auditrelay/auditrelay/internal/retry"
)

// call is one operation with its parameters.
type call struct {
	operation string // a verb phrase: the errors' prefix, and the metrics' label
	method    string
	path      string // as the document writes it, parameters as :name
	params    []string
	query     url.Values
	body      []byte        // JSON, or nil
	scrub     *scrubber     // nil: the client's own
	timeout   time.Duration // of an attempt; 0: the client's own
	question  bool          // whether any call can succeed: it goes ahead of the others
}

// reply is a 2xx answer.
type reply struct {
	status int
	body   []byte
}

const (
	backoffFirst = 500 * time.Millisecond
	backoffMost  = 30 * time.Second
	// patience is the longest wait of the client itself. When a server asks for more, the
	// caller gets the error, with RetryAfter, and so does every call until then.
	patience = 2 * time.Minute
	// shortHold is the longest wait of a person's call for the end of a Retry-After.
	shortHold = 10 * time.Second
	// errorBytes bounds the bytes read of an error's body.
	errorBytes = 64 << 10
)

// send makes the call. It repeats the call if a repetition is safe and may succeed. Where no
// attempt was sent, the error is [ErrNotSent].
func (c *Client) send(ctx context.Context, k call) (reply, error) {
	k.scrub = cmp.Or(k.scrub, c.scrub)
	r, sent, err := c.repeat(ctx, k)
	switch {
	case err == nil:
		return r, nil
	case !sent:
		err = marked{err, ErrNotSent}
	}
	return reply{}, fmt.Errorf("%s: %w", k.operation, err)
}

// repeat reports too whether any attempt may have reached the API.
func (c *Client) repeat(ctx context.Context, k call) (r reply, sent bool, err error) {
	path, err := k.expand()
	if err != nil {
		return reply{}, false, err
	}
	for attempt, lost := 1, false; ; attempt++ {
		if err := c.admit(ctx, k); err != nil {
			return reply{}, sent, err
		}
		r, err := c.attempt(ctx, k, path)
		if err == nil {
			c.breaker.succeeded(k)
			return r, true, nil
		}
		if !errors.Is(err, errNotStarted) {
			lost, sent = hadNoAnswer(err, lost), true
		}
		wait, again := c.again(ctx, k, attempt, err)
		if !again || hung(err) {
			if err = c.judge(ctx, k, err); !again || errors.Is(err, ErrUnreachable) {
				return reply{}, sent, err
			}
		}
		c.metrics.retries.WithLabelValues(k.label()).Inc()
		if retry.Sleep(ctx, wait) != nil {
			return reply{}, sent, fmt.Errorf("%w, after: %w", ctx.Err(), err)
		}
	}
}

// errNotStarted marks the error of an attempt without a connection, or without its turn.
var errNotStarted = errors.New("the request did not start")

// hung reports whether an attempt had no answer for as long as it may take. Then it is judged
// at once, as four more take minutes.
func hung(err error) bool {
	var timeout net.Error
	return errors.As(err, &timeout) && timeout.Timeout()
}

// hadNoAnswer reports whether this attempt, or an earlier one, may have had its effect
// without an answer. A later refusal is marked.
func hadNoAnswer(err error, earlier bool) bool {
	var api *APIError
	if errors.As(err, &api) && api.Status < 500 {
		api.afterLost = earlier
		return earlier
	}
	return true
}

// attempt sends one request and reads its answer.
func (c *Client) attempt(ctx context.Context, k call, path string) (r reply, err error) {
	if err := c.queue.start(ctx, c.class, k.question); err != nil {
		return reply{}, fmt.Errorf("wait for the rate limit: %w", marked{err, errNotStarted})
	}
	defer func() {
		c.hold(err)
		c.queue.done()
	}()
	if !k.question && !isAtOnce(ctx) {
		if refusal := c.breaker.isOpen(); refusal != nil { // since the call was admitted
			return reply{}, marked{refusal, errNotStarted}
		}
	}
	start := time.Now()
	defer func() { c.metrics.attempt(k.label(), r.status, err, time.Since(start)) }()
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(k.timeout, c.options.Timeout))
	defer cancel()
	req, err := c.request(ctx, k, path)
	if err != nil {
		return reply{}, err
	}
	if permit := c.options.Permit; permit != nil {
		if err := permit(ctx); err != nil {
			return reply{}, marked{err, errNotStarted}
		}
	}
	resp, err := c.http.Do(req)
	if err != nil {
		if cleaned := k.scrub.cleanError(err); isDial(err) {
			return reply{}, marked{cleaned, errNotStarted}
		} else {
			return reply{}, cleaned
		}
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		// A failed read only shortens the error's message.
		body, _ := io.ReadAll(io.LimitReader(resp.Body, errorBytes))
		return reply{}, newAPIError(resp, body, k.scrub)
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, c.options.MaxAnswerBytes+1))
	if err != nil {
		return reply{}, fmt.Errorf("read the answer: %w", k.scrub.cleanError(err))
	}
	if int64(len(body)) > c.options.MaxAnswerBytes {
		return reply{}, fmt.Errorf("%w: more than %d bytes", ErrAnswerTooLarge, c.options.MaxAnswerBytes)
	}
	if err := disguised(k, resp, body); err != nil {
		return reply{}, err
	}
	return reply{status: resp.StatusCode, body: body}, nil
}

// hold keeps the API's wish in a 429, for all calls: nothing is sent before its end. Calls
// with too little patience for it are refused.
func (c *Client) hold(err error) {
	e := answered(err)
	if e.holds() == 0 {
		return
	}
	until := time.Now().Add(e.holds())
	if e.holds() > patience {
		c.breaker.hold(until, err)
	}
	c.queue.hold(until)
}

// isDial reports whether there was no connection to send a request over.
func isDial(err error) bool {
	var o *net.OpError
	return errors.As(err, &o) && o.Op == "dial"
}

func (c *Client) request(ctx context.Context, k call, path string) (*http.Request, error) {
	target := c.base + path
	if len(k.query) > 0 {
		target += "?" + k.query.Encode()
	}
	req, err := http.NewRequestWithContext(ctx, k.method, target, bytes.NewReader(k.body))
	if err != nil {
		return nil, err
	}
	req.SetBasicAuth(c.options.KeyID, c.options.Secret.Reveal())
	req.Header.Set("Accept", "application/json")
	req.Header.Set("User-Agent", "auditrelay")
	if k.body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	return req, nil
}

// again says whether to repeat a failed attempt, and after how long. It never repeats a
// POST: the first attempt may have had its effect.
func (c *Client) again(ctx context.Context, k call, attempt int, err error) (time.Duration, bool) {
	var api *APIError
	throttled := c.options.Patient && errors.As(err, &api) && api.Status == http.StatusTooManyRequests
	if ctx.Err() != nil || k.method == http.MethodPost || attempt >= c.options.MaxAttempts && !throttled || errors.Is(err, ErrAnswerTooLarge) || isUnsent(err) {
		return 0, false
	}
	wait := backoff(attempt)
	if errors.As(err, &api) {
		if api.Status != http.StatusTooManyRequests && (api.Status < 500 || api.RetryAfter > probeMostOutage) {
			return 0, false // a server that is away for longer is an outage, and asked again as one
		}
		// Jitter on top keeps many clients from returning at once.
		if api.RetryAfter > 0 {
			wait = api.RetryAfter + wait/4
		}
	}
	if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) < wait && !throttled {
		return 0, false
	}
	return wait, wait <= patienceOf(ctx)
}

// backoff doubles with each attempt, and spreads over its upper half.
func backoff(attempt int) time.Duration {
	d := min(backoffFirst<<min(attempt-1, 10), backoffMost)
	return d/2 + rand.N(d/2)
}

// expand puts the parameters into the path, each as exactly one segment. It refuses dot
// segments even in escaped form: an intermediary may resolve "%2E%2E" and lead the call
// to another resource.
func (k call) expand() (string, error) {
	segments, next := strings.Split(k.path, "/"), 0
	for i, s := range segments {
		if !strings.HasPrefix(s, ":") {
			continue
		}
		value := k.params[next]
		if value == "" || value == "." || value == ".." {
			return "", fmt.Errorf("%s %q cannot be part of a path", s[1:], value)
		}
		segments[i] = url.PathEscape(value)
		next++
	}
	return strings.Join(segments, "/"), nil
}

func (k call) label() string { return strings.ReplaceAll(k.operation, " ", "_") }
