package ingest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"sync/atomic"
	"time"
)

// headBytes of a body are read before a push gets its buffers. So each of thousands of
// clients sending a byte a second costs no more than this.
const headBytes = 4 << 10

// After a grace period, a client must have sent minRate bytes a second on average. The
// grace is a sixth of the whole time allowed.
const (
	minRate    = 1 << 10
	graceShare = 6
)

// pace gives a client time to send, as long as it is fast enough and not over the whole
// time. net/http lifts the deadline at the end of the body, so it does not interrupt the
// journal's work.
type pace struct {
	conn       *http.ResponseController
	start, end time.Time
	grace      time.Duration
	until      time.Time // the current deadline
}

func newPace(w http.ResponseWriter, whole time.Duration) pace {
	start := time.Now()
	p := pace{conn: http.NewResponseController(w), start: start, end: start.Add(whole), grace: whole / graceShare}
	p.moved(0)
	return p
}

// moved extends the deadline of a client after n bytes in all.
func (p *pace) moved(n int) {
	until := p.start.Add(p.grace + time.Duration(n)*time.Second/minRate)
	if until.After(p.end) {
		until = p.end
	}
	if until.Sub(p.until) < p.grace/8 {
		return // too few to be worth a call
	}
	p.until = until
	// Only a test's writer has no deadlines. Then there is none.
	_ = p.conn.SetReadDeadline(until)
}

// body holds the forms of a push's body.
type body struct {
	raw     []byte // as sent
	plain   []byte // decompressed
	decoded []byte // raw or plain, for the decoder
	source  bytes.Reader
}

// read reads the body into a push. The caller must release it.
func (h *Handler) read(w http.ResponseWriter, r *http.Request) (*push, error) {
	limit := int64(h.limits.BodyBytes)
	if r.ContentLength > limit {
		return nil, tooLarge("the body has %d bytes, at most %d are taken", r.ContentLength, limit)
	}
	head, _ := h.heads.Get().(*[headBytes]byte)
	defer h.heads.Put(head)
	pace := newPace(w, h.limits.ReadTimeout)
	n, err := readFull(r.Body, head[:], 0, &pace)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, readRefusal(err)
	}
	p, _ := h.pushes.Get().(*push)
	p.lease.from = &h.memory
	if e := p.lease.grow(p.size()); e != nil {
		h.release(p)
		return nil, e
	}
	p.body.raw = append(p.body.raw[:0], head[:n]...)
	if err == nil {
		err = p.readRest(r, limit, &pace)
	}
	if err != nil && !errors.Is(err, io.EOF) {
		h.release(p)
		return nil, readRefusal(err)
	}
	return p, nil
}

// readRest reads the body after its head.
func (p *push) readRest(r *http.Request, limit int64, pace *pace) error {
	room := min(max(r.ContentLength+1, 2*headBytes), 1<<20) // one byte more, to see the end
	for {
		if err := p.reserve(&p.body.raw, room); err != nil {
			return err
		}
		n, err := readFull(r.Body, p.body.raw[len(p.body.raw):cap(p.body.raw)], len(p.body.raw), pace)
		p.body.raw = p.body.raw[:len(p.body.raw)+n]
		if int64(len(p.body.raw)) > limit {
			return tooLarge("the body has more than the allowed %d bytes", limit)
		}
		if err != nil {
			return err
		}
		room = min(2*int64(cap(p.body.raw)), limit+1)
	}
}

// readFull fills buf, or reads to the end and returns io.EOF. The client has sent before
// bytes so far.
func readFull(body io.Reader, buf []byte, before int, pace *pace) (int, error) {
	n := 0
	for n < len(buf) {
		m, err := body.Read(buf[n:])
		n += m
		if err != nil {
			return n, err
		}
		pace.moved(before + n)
	}
	return n, nil
}

func readRefusal(err error) error {
	var r *refusal
	switch {
	case errors.As(err, &r):
		return r
	case errors.Is(err, os.ErrDeadlineExceeded):
		return &refusal{status: http.StatusRequestTimeout, reason: "slow", hangUp: true, text: "the body comes too slowly"}
	}
	return errGone
}

func tooLarge(text string, args ...any) *refusal {
	return &refusal{status: http.StatusRequestEntityTooLarge, reason: "too_large", hangUp: true, text: fmt.Sprintf(text, args...)}
}

// reserve makes *buf hold n bytes in all, within the budget.
func (p *push) reserve(buf *[]byte, n int64) error {
	if n <= int64(cap(*buf)) {
		return nil
	}
	// The old buffer counts until its bytes are copied.
	if err := p.lease.grow(p.size() + n); err != nil {
		return err
	}
	grown := make([]byte, len(*buf), n)
	copy(grown, *buf)
	*buf = grown
	p.lease.shrink(p.size())
	return nil
}

// budget bounds the memory of all pushes together.
type budget struct {
	limit int64
	used  atomic.Int64
}

// lease is the share of one push in a budget.
type lease struct {
	from *budget
	held int64
}

var errMemory = &refusal{
	status: http.StatusTooManyRequests, reason: "overload", retryAfter: retryOverload, hangUp: true,
	text: "too many bytes in flight",
}

// grow makes the lease at least n bytes. It never waits for other pushes, as they may be
// waiting for this one. A push larger than the whole budget is too large: trying again
// would not help.
func (l *lease) grow(n int64) error {
	more := n - l.held
	if more <= 0 {
		return nil
	}
	if n > l.from.limit {
		return tooLarge("the push takes more memory than the %d bytes for all pushes together", l.from.limit)
	}
	if l.from.used.Add(more) > l.from.limit {
		l.from.used.Add(-more)
		return errMemory
	}
	l.held = n
	return nil
}

// shrink gives back all above n bytes.
func (l *lease) shrink(n int64) {
	if less := l.held - n; less > 0 {
		l.from.used.Add(-less)
		l.held = n
	}
}

func (l *lease) release() { l.shrink(0) }
