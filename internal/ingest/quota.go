package ingest

import (
	"context"
	"errors"
	"math"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/internal/ingest/credentials"
	"github.com/auditrelay/auditrelay/internal/journal"
)

// Room reserves bytes in the journal, before compression, for an append of a source. Call
// giveBack after the append. The source may hold most bytes there; 0 is no bound except
// fairness. An error wrapping journal.ErrShare asks the source to wait.
type Room func(ctx context.Context, source string, bytes, most int64) (giveBack func(), err error)

// quotas bound each environment. They check it twice: before they read its body, so a
// flood costs little, and just before they append the decoded events.
type quotas struct {
	room    Room // nil for no bound
	now     func() time.Time
	by      atomic.Pointer[map[credentials.Environment]*quota] // replaced whole
	refused *prometheus.CounterVec
}

// quota is the quota of one environment.
type quota struct {
	cfg           config.Quota
	events, bytes bucket
}

func newQuotas(o Options) *quotas {
	q := &quotas{room: o.Room, now: o.Now}
	q.by.Store(&map[credentials.Environment]*quota{})
	q.refused = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "auditrelay_ingest_environment_refused_total",
		Help: "Pushes refused to an environment on its own account: rate, its quota of events or bytes a second; room, its share of the journal.",
	}, []string{"project", "environment", "reason"})
	q.set(o.Quotas)
	o.Registerer.MustRegister(q.refused)
	return q
}

// set replaces the quotas. One that stays as it is goes on, with what it has counted.
func (q *quotas) set(all map[credentials.Environment]config.Quota) {
	before, by := *q.by.Load(), map[credentials.Environment]*quota{}
	for env, cfg := range all {
		if by[env] = before[env]; by[env] == nil || by[env].cfg != cfg {
			now := q.now()
			by[env] = &quota{cfg: cfg, events: newBucket(cfg.EventsPerSecond, now), bytes: newBucket(float64(cfg.BytesPerSecond), now)}
		}
		q.refused.WithLabelValues(env.Project, env.Environment, "rate")
		q.refused.WithLabelValues(env.Project, env.Environment, "room")
	}
	q.by.Store(&by)
	for env := range before {
		if by[env] == nil {
			q.refused.DeleteLabelValues(env.Project, env.Environment, "rate")
			q.refused.DeleteLabelValues(env.Project, env.Environment, "room")
		}
	}
}

// SetQuotas replaces Options.Quotas.
func (h *Handler) SetQuotas(all map[credentials.Environment]config.Quota) { h.quotas.set(all) }

// admit says whether to read a push of env.
func (q *quotas) admit(ctx context.Context, env credentials.Environment, source string) error {
	if own := (*q.by.Load())[env]; own != nil {
		now := q.now()
		if wait := max(own.events.wait(now), own.bytes.wait(now)); wait > 0 {
			return q.refuse(env, "rate", wait, "the environment pushes more than its quota of events or bytes a second", nil)
		}
	}
	giveBack, err := q.reserve(ctx, env, source, 0)
	if err != nil {
		return err
	}
	giveBack()
	return nil
}

// charge counts the events of a push that were decoded, repeated and refused ones too, and the bytes of
// a body that could not be: all of them cost as much to read as others.
func (q *quotas) charge(env credentials.Environment, events int, bytes int64) {
	if own := (*q.by.Load())[env]; own != nil {
		now := q.now()
		own.events.take(float64(events), now)
		own.bytes.take(float64(bytes), now)
	}
}

func (q *quotas) reserve(ctx context.Context, env credentials.Environment, source string, size int64) (giveBack func(), err error) {
	if q.room == nil {
		return func() {}, nil
	}
	most := int64(0)
	if own := (*q.by.Load())[env]; own != nil {
		most = int64(own.cfg.UndeliveredBytes)
	}
	giveBack, err = q.room(ctx, source, size, most)
	if errors.Is(err, journal.ErrShare) {
		return nil, q.refuse(env, "room", retryRoom, "the environment's events wait for sinks, and take all of their share of the journal", err)
	}
	return giveBack, err
}

// retryRoom is the Retry-After of an environment waiting for sinks.
const retryRoom = 5 * time.Second

// refuse refuses one environment with a 429: the relay itself is well.
func (q *quotas) refuse(env credentials.Environment, reason string, wait time.Duration, text string, cause error) error {
	q.refused.WithLabelValues(env.Project, env.Environment, reason).Inc()
	return &refusal{
		status: http.StatusTooManyRequests, reason: "environment_" + reason, text: text, cause: cause,
		retryAfter: time.Duration(math.Ceil(wait.Seconds())) * time.Second,
	}
}

// burst is how long an environment may push without a bound after a quiet time.
const burst = 10 * time.Second

// bucket is a token bucket. It may run into debt: a push counts after its decoding, and
// the next one waits until the debt is paid.
type bucket struct {
	rate float64 // tokens a second; 0 for no bound

	mu    sync.Mutex
	level float64   // at most burst's worth; guarded by mu
	at    time.Time // time of level; guarded by mu
}

func newBucket(rate float64, now time.Time) bucket {
	return bucket{rate: rate, level: rate * burst.Seconds(), at: now}
}

// wait is the time until the bucket holds something.
func (b *bucket) wait(now time.Time) time.Duration {
	if b.rate == 0 {
		return 0
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.fill(now)
	if b.level > 0 {
		return 0
	}
	return time.Duration((1 - b.level) / b.rate * float64(time.Second))
}

// take takes tokens out, even more than there are.
func (b *bucket) take(tokens float64, now time.Time) {
	if b.rate == 0 {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.fill(now)
	b.level -= tokens
}

// fill adds the tokens since the last call. mu is held.
func (b *bucket) fill(now time.Time) {
	since := max(0, now.Sub(b.at))
	b.level, b.at = min(b.level+b.rate*since.Seconds(), b.rate*burst.Seconds()), now
}
