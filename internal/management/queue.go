package management

import (
	"context"
	"errors"
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
// ones first.
type queue struct {
	mu      sync.Mutex // guards all
	limiter *rate.Limiter
	free    int                      // requests free to start, beside those under way
	waiting [classes][]chan struct{} // closed when the caller may start
	row     int                      // urgent requests since a patient one
	timer   bool                     // a call of give is due, once the rate allows
}

func newQueue(perSecond float64, atOnce int) *queue {
	return &queue{limiter: rate.NewLimiter(rate.Limit(perSecond), max(1, int(math.Ceil(perSecond)))), free: atOnce}
}

// errNoTurn: the deadline comes before the caller's turn.
var errNoTurn = errors.New("the deadline comes before the next turn")

// start waits for the caller's turn; done ends it.
func (q *queue) start(ctx context.Context, class int) error {
	turn := make(chan struct{})
	q.mu.Lock()
	if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) < q.soonest() {
		q.mu.Unlock()
		return errNoTurn
	}
	q.waiting[class] = append(q.waiting[class], turn)
	q.give()
	q.mu.Unlock()
	select {
	case <-turn:
		return nil
	case <-ctx.Done():
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if i := slices.Index(q.waiting[class], turn); i >= 0 {
		q.waiting[class] = slices.Delete(q.waiting[class], i, i+1)
	} else { // the turn came together with the context's end
		q.free++
		q.give()
	}
	return ctx.Err()
}

// soonest is how long the rate makes the next request wait. Needs mu.
func (q *queue) soonest() time.Duration {
	missing := max(0, 1-q.limiter.Tokens())
	return time.Duration(math.Ceil(missing / float64(q.limiter.Limit()) * float64(time.Second)))
}

func (q *queue) done() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.free++
	q.give()
}

// give starts those who may. Needs mu.
func (q *queue) give() {
	for q.free > 0 && !q.timer && len(q.waiting[urgent])+len(q.waiting[patient]) > 0 {
		if !q.limiter.Allow() {
			q.timer = true
			time.AfterFunc(q.soonest(), q.again)
			return
		}
		class := q.choose()
		close(q.waiting[class][0])
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
