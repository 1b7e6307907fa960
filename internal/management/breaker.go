package management

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"
)

// Cause is why the API cannot be used at all.
type Cause string

// The causes.
const (
	// CauseUnauthorized: the API refuses the key.
	CauseUnauthorized Cause = "unauthorized"
	// CauseOutage: the API gives no answer, or server errors only.
	CauseOutage Cause = "outage"
)

// ErrUnreachable means an API unusable by any call: see [Client.Reach].
var ErrUnreachable = errors.New("the management API cannot be used at present")

// Reach says whether the API can be used at all.
type Reach struct {
	// Known is false until the first call has ended.
	Known bool `json:"known"`
	// Cause is why no call can succeed; empty: calls can.
	Cause Cause `json:"cause,omitempty"`
	// Since is when this began.
	Since time.Time `json:"since,omitzero"`
	// Error and RequestID are of the answer showing it. RequestID may be empty.
	Error     string `json:"error,omitempty"`
	RequestID string `json:"request_id,omitempty"`
}

const (
	probeFirst = time.Second
	probeMost  = 5 * time.Minute
)

// breaker stops all calls while none can succeed. A call failing by the key or by an
// outage does not open it alone: its project is read once more, then others, and all must
// fail. While it is open, the next caller reads its project first, at growing pauses; the
// others are refused at once.
type breaker struct {
	judging  chan struct{} // holds one token: somebody asks whether calls can succeed
	projects []string      // to ask for; immutable

	mu      sync.Mutex // guards the fields below
	reach   Reach
	changed chan struct{} // closed at the next change of reach
	asking  bool          // somebody asks, while it is open
	pause   time.Duration // before the next question
	next    time.Time     // of the next question
	project string        // of the last call with one
	good    string        // of the last success
}

func newBreaker(projects []string) *breaker {
	return &breaker{judging: make(chan struct{}, 1), projects: slices.Clone(projects), changed: make(chan struct{})}
}

// Reach says whether the API can be used, and gives a channel to be closed with the next
// change.
func (c *Client) Reach() (Reach, <-chan struct{}) {
	c.breaker.mu.Lock()
	defer c.breaker.mu.Unlock()
	return c.breaker.reach, c.breaker.changed
}

func (b *breaker) state() Reach {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.reach
}

// admit lets a call go, or refuses it while no call can succeed.
func (c *Client) admit(ctx context.Context, k call) error {
	ask, err := c.breaker.enter(k)
	if !ask {
		return err
	}
	err = c.ask(ctx, k)
	return c.breaker.answered(ctx, err)
}

// enter reports whether the caller is to ask first.
func (b *breaker) enter(k call) (ask bool, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(k.params) > 0 {
		b.project = k.params[0]
	}
	switch {
	case b.reach.Cause == "":
		return false, nil
	case b.asking || time.Now().Before(b.next):
		return false, b.refusal()
	}
	b.asking = true
	return true, nil
}

// answered takes the answer of a question while it is open.
func (b *breaker) answered(ctx context.Context, err error) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.asking = false
	if ctx.Err() != nil {
		return ctx.Err()
	}
	b.next = time.Now().Add(b.grow())
	if cause := causeOf(err); cause != b.reach.Cause {
		b.set(cause, err)
	}
	return b.refusal()
}

// refusal is the error of a call while it is open. Needs mu.
func (b *breaker) refusal() error {
	if b.reach.Cause == "" {
		return nil
	}
	return fmt.Errorf("%w: %s since %s: %s", ErrUnreachable, b.reach.Cause, b.reach.Since.UTC().Format(time.RFC3339), b.reach.Error)
}

func (b *breaker) isOpen() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.refusal()
}

// succeeded notes a successful call. While it is open, only a question closes it.
func (b *breaker) succeeded(k call) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(k.params) > 0 {
		b.good = k.params[0]
	}
	if !b.reach.Known {
		b.set("", nil)
	}
}

// open notes: no call can succeed.
func (b *breaker) open(cause Cause, err error) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	// Where it was closed a moment ago, the pauses go on growing.
	if time.Since(b.reach.Since) > 2*b.pause {
		b.pause = 0
	}
	b.next = time.Now().Add(b.grow())
	b.set(cause, err)
	return b.refusal()
}

func (b *breaker) grow() time.Duration {
	b.pause = min(max(2*b.pause, probeFirst), probeMost)
	return b.pause
}

// set changes reach. Needs mu.
func (b *breaker) set(cause Cause, err error) {
	b.reach = Reach{Known: true, Cause: cause, Since: time.Now()}
	var e *APIError
	if cause != "" {
		b.reach.Error = err.Error()
	}
	if errors.As(err, &e) {
		b.reach.RequestID = e.RequestID
	}
	close(b.changed)
	b.changed = make(chan struct{})
}

// judge decides whether the failure of a call is one of all calls. It returns err, with
// [ErrUnreachable] where it is.
func (c *Client) judge(ctx context.Context, k call, err error) error {
	if causeOf(err) == "" || ctx.Err() != nil {
		return err
	}
	select {
	case c.breaker.judging <- struct{}{}:
	case <-ctx.Done():
		return err
	}
	defer func() { <-c.breaker.judging }()
	refusal := c.breaker.isOpen()
	if refusal == nil {
		asked := c.ask(ctx, k)
		cause := causeOf(asked)
		if cause == "" || ctx.Err() != nil {
			return err
		}
		refusal = c.breaker.open(cause, asked)
	}
	return fmt.Errorf("%w; this call: %w", refusal, err)
}

// askAtMost bounds the projects of a question.
const askAtMost = 3

// ask reads the project of k, once; it is the cheapest call, and open to every key. If
// the read fails as every call would, it reads others: the key may not read this one, or
// it is broken.
func (c *Client) ask(ctx context.Context, k call) (err error) {
	for _, project := range c.breaker.toAsk(k) {
		if err = c.askFor(ctx, project); causeOf(err) == "" || ctx.Err() != nil {
			return err
		}
	}
	return err
}

func (c *Client) askFor(ctx context.Context, project string) error {
	q := call{operation: "read project", method: http.MethodGet, path: projectPath, params: []string{project}, scrub: c.scrub}
	path, err := q.expand()
	if err != nil {
		return err
	}
	_, err = c.attempt(ctx, q, path)
	return err
}

// toAsk lists the projects of a question; none: there is nothing to ask for.
func (b *breaker) toAsk(k call) []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	own := b.project
	if len(k.params) > 0 {
		own = k.params[0]
	}
	var all []string
	for _, p := range append([]string{own, b.good}, b.projects...) {
		if p != "" && !slices.Contains(all, p) && len(all) < askAtMost {
			all = append(all, p)
		}
	}
	return all
}

// causeOf is why an error may be one of all calls; empty: it is not.
func causeOf(err error) Cause {
	var e *APIError
	switch {
	case err == nil, errors.Is(err, ErrAnswerTooLarge), errors.Is(err, errNoTurn):
		return ""
	case !errors.As(err, &e), e.Status >= 500:
		return CauseOutage
	case IsDenied(err):
		return CauseUnauthorized
	}
	return ""
}

// CauseOf sorts the errors of a call: a short text, equal for equal causes.
func CauseOf(err error) string {
	var e *APIError
	switch {
	case err == nil:
		return ""
	case errors.Is(err, ErrUnproven):
		return ErrUnproven.Error()
	case errors.As(err, &e) && e.Type != "":
		return fmt.Sprintf("HTTP %d %s", e.Status, e.Type)
	case errors.As(err, &e):
		return fmt.Sprintf("HTTP %d", e.Status)
	case errors.Is(err, ErrAnswerTooLarge):
		return ErrAnswerTooLarge.Error()
	case errors.Is(err, ErrNoResource):
		return ErrNoResource.Error()
	}
	return "no usable answer"
}
