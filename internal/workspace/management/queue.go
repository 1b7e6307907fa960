package management

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// The classes of calls.
const (
	urgent  = iota // every call, unless its client gives way
	patient        // the calls of [Client.GivingWay]
	classes
)

// urgentInARow is how many urgent requests go before a waiting patient one. So the others
// have a part of the budget even if urgent calls alone would spend it.
const urgentInARow = 4

// queue starts requests: at most so many a second, at most so many at once, and urgent
// ones first. None starts while the API has asked this caller to wait.
type queue struct {
	mu      sync.Mutex // guards all
	limiter *rate.Limiter
	free    int                   // requests free to start, apart from those under way
	waiting [classes][]chan error // takes nil when the caller may start, else why it may not
	row     int                   // urgent requests since a patient one
	timer   bool                  // a call of give is due, once the rate allows
	held    time.Time             // the API asked to wait until then
}

func newQueue(perSecond float64, atOnce int) *queue {
	return &queue{limiter: rate.NewLimiter(rate.Limit(perSecond), max(1, int(math.Ceil(perSecond)))), free: atOnce}
}

var (
	// errNoTurn: the deadline comes before the caller's turn.
	errNoTurn = errors.New("the deadline comes before the next turn")
	// errHeld: the wait that the API asked for is longer than the caller's patience.
	errHeld = fmt.Errorf("%w: it asked to wait", ErrUnreachable)
)

// isUnsent reports whether err tells of an attempt for which nothing was sent.
func isUnsent(err error) bool { return errors.Is(err, errNoTurn) || errors.Is(err, ErrUnreachable) }

// start waits for the caller's turn, as the first of its class where that is asked for; done ends it.
func (q *queue) start(ctx context.Context, class int, first bool) error {
	turn := make(chan error, 1)
	q.mu.Lock()
	if err := q.refuses(ctx); err != nil {
		q.mu.Unlock()
		return err
	}
	if first {
		q.waiting[class] = slices.Insert(q.waiting[class], 0, turn)
	} else {
		q.waiting[class] = append(q.waiting[class], turn)
	}
	q.give()
	q.mu.Unlock()
	select {
	case err := <-turn:
		return err
	case <-ctx.Done():
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if i := slices.Index(q.waiting[class], turn); i >= 0 {
		q.waiting[class] = slices.Delete(q.waiting[class], i, i+1)
	} else if <-turn == nil { // the turn came together with the context's end
		q.free++
		q.give()
	}
	if time.Now().Before(q.held) {
		return fmt.Errorf("%w: %w", ctx.Err(), q.heldError())
	}
	return ctx.Err()
}

// refuses is the error of a caller that would wait too long. Needs mu.
func (q *queue) refuses(ctx context.Context) error {
	if time.Until(q.held) > patienceOf(ctx) {
		return q.heldError()
	}
	if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) < q.soonest() {
		return errNoTurn
	}
	return nil
}

// Held is the error of a call with this context, where the API asked to wait for longer than
// its patience; else it is nil. It sends nothing.
func (c *Client) Held(ctx context.Context) error {
	c.queue.mu.Lock()
	defer c.queue.mu.Unlock()
	if time.Until(c.queue.held) > patienceOf(ctx) {
		return c.queue.heldError()
	}
	return nil
}

func (q *queue) heldError() error {
	return fmt.Errorf("%w until %s (429 with Retry-After), and nothing is sent before", errHeld, q.held.UTC().Format(time.RFC3339))
}

func (q *queue) heldUntil() time.Time {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.held
}

// soonest is how long the rate, or the API, makes the next request wait. Needs mu.
func (q *queue) soonest() time.Duration {
	missing := max(0, 1-q.limiter.Tokens())
	byRate := time.Duration(math.Ceil(missing / float64(q.limiter.Limit()) * float64(time.Second)))
	return max(byRate, time.Until(q.held))
}

// done ends a caller's turn.
func (q *queue) done() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.free++
	q.give()
}

// hold starts no request before a time; those who wait are refused where it is far away.
func (q *queue) hold(until time.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if until.After(q.held) {
		q.held = until
	}
	if time.Until(q.held) <= patience {
		return
	}
	for class, waiting := range q.waiting {
		for _, turn := range waiting {
			turn <- q.heldError()
		}
		q.waiting[class] = nil
	}
}

// give starts those who may. Needs mu.
func (q *queue) give() {
	for q.free > 0 && !q.timer && len(q.waiting[urgent])+len(q.waiting[patient]) > 0 {
		if time.Now().Before(q.held) || !q.limiter.Allow() {
			q.timer = true
			time.AfterFunc(q.soonest(), q.again)
			return
		}
		class := q.choose()
		q.waiting[class][0] <- nil
		q.waiting[class] = q.waiting[class][1:]
		q.free--
	}
}

func (q *queue) again() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.timer = false
	q.give()
}

// choose returns the class whose turn it is. Needs mu.
func (q *queue) choose() int {
	switch {
	case len(q.waiting[patient]) == 0:
		q.row = 0
		return urgent
	case len(q.waiting[urgent]) == 0, q.row == urgentInARow:
		q.row = 0
		return patient
	}
	q.row++
	return urgent
}
