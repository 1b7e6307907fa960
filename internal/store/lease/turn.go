package lease

import (
	"cmp"
	"context"
	"sync/atomic"
	"time"

	"github.com/auditrelay/auditrelay/internal/retry"
	"github.com/auditrelay/auditrelay/internal/store"
)

// Turn is a relay's right to do a job. The zero Turn is that of a relay without others.
type Turn struct {
	key    string // of the job's epoch
	epoch  atomic.Pointer[Epoch]
	heard  *atomic.Int64 // when the relay's last heartbeat was begun that reached the table, since start
	start  time.Time
	within time.Duration
}

// NewTurn returns the turn of a job under an epoch.
func NewTurn(job string, e Epoch) *Turn {
	t := &Turn{key: epochKey + job}
	t.epoch.Store(&e)
	return t
}

// Number counts the holders that the job has had: a later holder has a larger one. It is 0 for
// a relay without others.
func (t *Turn) Number() uint64 { return t.now().Number }

// now is the epoch as it is at present.
func (t *Turn) now() Epoch { return *cmp.Or(t.epoch.Load(), &Epoch{}) }

// Guard is the condition of what is made durable for the job. It changes where the table has
// lost the epoch, and the relay has written it again.
func (t *Turn) Guard() store.If { return store.If{Key: t.key, Rev: t.now().Rev} }

// Await returns once it is certain that no other relay can have the job: the last heartbeat
// that reached the table is younger than what others wait for. It is asked before something
// is done that no store can refuse, such as a delivery. A process that was frozen waits in it,
// and hears that it was declared dead.
func (t *Turn) Await(ctx context.Context) error {
	for t.heard != nil && time.Since(t.start)-time.Duration(t.heard.Load()) >= t.within {
		if err := retry.Sleep(ctx, awaitPause); err != nil {
			return err
		}
	}
	return ctx.Err()
}

const awaitPause = 50 * time.Millisecond
