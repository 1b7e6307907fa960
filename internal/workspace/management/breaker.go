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
	// CauseThrottled: the API asked this caller to wait, for longer than a call waits.
	CauseThrottled Cause = "throttled"
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
	// NextTry is when the API is asked again; zero while it can be used, or is being asked.
	NextTry time.Time `json:"next_try,omitzero"`
	// HeldUntil is when this caller may send again, by the API's Retry-After; zero: now.
	HeldUntil time.Time `json:"held_until,omitzero"`
}

// The pauses between two questions double from probeFirst to a maximum. After an outage
// the relay is blind for at most one question without an answer and one pause: under 30
// seconds in all. A key that is refused needs a person, so it is tried less often.
const (
	probeFirst        = time.Second
	probeMostOutage   = 10 * time.Second
	probeMostRefused  = 5 * time.Minute
	probeAnswerWithin = 15 * time.Second
)

// breaker stops all calls while none can succeed. A call failing by the key or by an
// outage does not open it alone: its project is read once more, then others, and all must
// fail. A long Retry-After opens it without a question.
//
// While it is open, [Client.Probe], or the next caller, reads a project first, at growing
// pauses; the others are refused at once. The calls of [AtOnce] do not wait for the pause,
// except for that of a Retry-After.
type breaker struct {
	judging  chan struct{} // holds one token: somebody asks whether calls can succeed
	projects []string      // to ask for; immutable

	mu      sync.Mutex // guards the fields below
	reach   Reach
	changed chan struct{} // closed at the next change of reach
	asking  chan struct{} // closed at the end of the question under way; nil: there is none
	asked   int           // the questions that began while it was open
	pause   time.Duration // before the next question
	next    time.Time     // of the next question
	project string        // of the last call with one
	good    call          // the last successful read; zero: none
}

func newBreaker(projects []string) *breaker {
	return &breaker{judging: make(chan struct{}, 1), projects: slices.Clone(projects), changed: make(chan struct{})}
}

// Reach says whether the API can be used, and gives a channel to be closed with the next
// change.
func (c *Client) Reach() (Reach, <-chan struct{}) {
	now, changed := c.breaker.state()
	if held := c.queue.heldUntil(); held.After(time.Now()) {
		now.HeldUntil = held
	}
	return now, changed
}

func (b *breaker) state() (Reach, <-chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.reach
	if now.Cause != "" && b.asking == nil {
		now.NextTry = b.next
	}
	return now, b.changed
}

// Probe asks the API again, at the pauses of the breaker, while it cannot be used. So the
// end of an outage is noticed although no call is due. It returns when ctx ends.
func (c *Client) Probe(ctx context.Context) {
	for {
		now, changed := c.Reach()
		var due <-chan time.Time
		if now.Cause != "" {
			due = time.After(max(time.Until(now.NextTry), probeFirst))
		}
		select {
		case <-ctx.Done():
			return
		case <-changed:
		case <-due:
			_ = c.admit(ctx, call{}) // its answer is in the reach
		}
	}
}

// Sleep waits until a time, or until an API that could not be used can be used again.
func (c *Client) Sleep(ctx context.Context, until time.Time) (recovered bool, err error) {
	timer := time.NewTimer(time.Until(until))
	defer timer.Stop()
	for reach, changed := c.Reach(); ; {
		select {
		case <-ctx.Done():
			return false, ctx.Err()
		case <-timer.C:
			return false, nil
		case <-changed:
			was := reach.Cause
			if reach, changed = c.Reach(); was != "" && reach.Cause == "" {
				return true, nil
			}
		}
	}
}

// urgencyKey is the key of a context's urgency: askAtOnce or forPerson.
type urgencyKey struct{}

const (
	askAtOnce = 1 + iota
	forPerson
)

// AtOnce marks the calls with this context as urgent: while the API cannot be used, they
// ask it at once, and do not wait for the next try. Where the API itself asked to wait,
// nothing is sent all the same.
func AtOnce(ctx context.Context) context.Context {
	return context.WithValue(ctx, urgencyKey{}, askAtOnce)
}

// ForPerson is [AtOnce] for the calls of a person's command. Where the API asked to wait,
// they wait for a few seconds at most; else they are refused, and the error says until when.
func ForPerson(ctx context.Context) context.Context {
	return context.WithValue(ctx, urgencyKey{}, forPerson)
}

func isAtOnce(ctx context.Context) bool { return ctx.Value(urgencyKey{}) != nil }

// patienceOf is the longest wait of a call for the end of a Retry-After.
func patienceOf(ctx context.Context) time.Duration {
	if ctx.Value(urgencyKey{}) == forPerson {
		return shortHold
	}
	return patience
}

// admit lets a call go, or refuses it while no call can succeed.
func (c *Client) admit(ctx context.Context, k call) error {
	arrived := c.breaker.arrive(k)
	for {
		turn := c.breaker.enter(isAtOnce(ctx), arrived)
		if turn.ask {
			return c.breaker.answered(ctx, c.ask(ctx, k))
		}
		if turn.after == nil {
			return turn.refusal
		}
		select {
		case <-turn.after:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// arrive notes a call, and returns the number of questions so far.
func (b *breaker) arrive(k call) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(k.params) > 0 {
		b.project = k.params[0]
	}
	return b.asked
}

// turn is what a caller is to do: to ask first, to wait for another's question, or to go,
// or be refused.
type turn struct {
	ask     bool
	after   <-chan struct{}
	refusal error
}

// enter decides about a call. One of [AtOnce] is refused only by a question that began
// after its arrival: an earlier one may have met the end of the outage.
func (b *breaker) enter(atOnce bool, arrived int) turn {
	b.mu.Lock()
	defer b.mu.Unlock()
	early := time.Now().Before(b.next)
	switch {
	case b.reach.Cause == "":
		return turn{}
	case b.asking != nil && atOnce:
		return turn{after: b.asking}
	case b.asking != nil,
		early && (!atOnce || b.reach.Cause == CauseThrottled),
		atOnce && b.asked > arrived:
		return turn{refusal: b.refusal()}
	}
	b.asking, b.asked = make(chan struct{}), b.asked+1
	return turn{ask: true}
}

// answered takes the answer of a question while it is open.
func (b *breaker) answered(ctx context.Context, err error) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	close(b.asking)
	b.asking = nil
	switch {
	case ctx.Err() != nil:
		b.asked-- // it says nothing to those who waited for it
		return ctx.Err()
	case isUnsent(err), b.reach.Cause == CauseThrottled && time.Now().Before(b.next):
		return b.refusal() // another call was asked to wait meanwhile
	}
	if cause := causeOf(err); cause != b.reach.Cause {
		b.set(cause, err)
	}
	b.next = time.Now().Add(b.grow())
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
	if k.method == http.MethodGet {
		b.good = k
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
	b.set(cause, err)
	b.next = time.Now().Add(b.grow())
	return b.refusal()
}

// hold notes: the API asked to wait for long. It is not asked before.
func (b *breaker) hold(until time.Time, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.reach.Cause != CauseThrottled {
		b.set(CauseThrottled, err)
		b.next = time.Time{}
	}
	if until.After(b.next) {
		b.next = until
	}
}

// grow doubles the pause, up to the most for the present cause.
func (b *breaker) grow() time.Duration {
	most := probeMostRefused
	if b.reach.Cause == CauseOutage {
		most = probeMostOutage
	}
	b.pause = min(max(2*b.pause, probeFirst), most)
	return b.pause
}

// set changes reach. Needs mu.
func (b *breaker) set(cause Cause, err error) {
	b.reach = Reach{Known: true, Cause: cause, Since: time.Now()}
	if cause != "" {
		b.reach.Error, b.reach.RequestID = err.Error(), RequestOf(err)
	}
	close(b.changed)
	b.changed = make(chan struct{})
}
