package tiles

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/auditrelay/auditrelay/internal/retry"
	"github.com/auditrelay/auditrelay/internal/trail/audit"
	"github.com/auditrelay/auditrelay/internal/trail/verify"
)

// Trail is an [audit.Trail], as far as its logs need one.
type Trail interface {
	// Checkpoints calls handle with each kept checkpoint from a number on, and caughtUp at
	// each end, until ctx ends or a call fails.
	Checkpoints(ctx context.Context, from uint64, handle func(audit.Kept) error, caughtUp func() error) error
	// Each calls handle with each readable entry from an index on, in order, until a call fails.
	Each(ctx context.Context, from int64, handle func(audit.Recorded) error) error
	// Leaves are the hashes of the leaves of the entries in [from, to), as they were signed, and as
	// far as they are known.
	Leaves(ctx context.Context, from, to int64) ([]tlog.Hash, error)
}

// Keeper writes the logs of a trail.
type Keeper struct {
	store *Store
	trail Trail
	// generations are the trail's, as it knows them now.
	generations func() []audit.Generation
	log         *slog.Logger

	// Used by the following goroutine only.
	writers map[int64]*writer // by the generation's base
	whole   bool              // the histories have all checkpoints that the tiles prove

	mu        sync.Mutex     // guards the fields below
	logs      map[string]Log // by origin
	fromFirst map[int64]bool // logs to be gone through from the first entry, by base
	again     func()         // ends the run under way; nil before the first one

	current atomic.Bool // the files have come up to the trail's end
}

// NewKeeper makes a keeper of a store. log may be nil.
func NewKeeper(store *Store, trail Trail, generations func() []audit.Generation, log *slog.Logger) *Keeper {
	return &Keeper{
		store: store, trail: trail, generations: generations, log: cmp.Or(log, slog.New(slog.DiscardHandler)),
		writers: map[int64]*writer{}, fromFirst: map[int64]bool{}, logs: map[string]Log{},
	}
}

// retryPause is the wait after a failure of the trail's servers, or of the disk.
const retryPause = 2 * time.Second

// Keep keeps the logs up with the trail until ctx ends, and reads all of their files once.
// Failures are logged now and then, and tried again; they stop nothing else.
func (k *Keeper) Keep(ctx context.Context) {
	var checking sync.WaitGroup
	defer checking.Wait()
	check := sync.OnceFunc(func() { checking.Go(func() { k.check(ctx) }) })
	var failing retry.Failure
	const late, mended = "the files of the audit trail fall behind; it is tried again", "the files of the audit trail are written again"
	for ctx.Err() == nil {
		run, end := context.WithCancel(ctx)
		k.mu.Lock()
		k.again = end
		k.mu.Unlock()
		err := k.follow(run, func() error {
			failing.Tell(k.log, nil, late, mended)
			k.current.Store(true)
			if k.begun() {
				check()
			}
			return nil
		})
		damaged, again := errors.Is(err, errDamaged), run.Err() != nil || errors.Is(err, errAgain)
		end()
		if ctx.Err() != nil || again && !damaged {
			continue
		}
		if !damaged && !errors.Is(err, audit.ErrUnavailable) {
			failing.Tell(k.log, err, late, mended)
		}
		_ = retry.Sleep(ctx, retryPause)
	}
}

// Handler is the store's, from when its files have first come up to the trail. Before that, another keeper
// of the same trail may have shown newer ones, and older ones would look as if the log went back.
func (k *Keeper) Handler() http.Handler {
	files := k.store.Handler()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !k.current.Load() {
			w.Header().Set("Retry-After", "1")
			http.Error(w, "the files are being brought up to the trail, which this relay has just taken over; ask again", http.StatusServiceUnavailable)
			return
		}
		files.ServeHTTP(w, r)
	})
}

// begun reports whether the newest log has a checkpoint. A new trail, or a new generation, is signed later
// than its keeper begins: before that there is nothing to read back.
func (k *Keeper) begun() bool {
	all := k.generations()
	newest := k.writers[all[len(all)-1].Base]
	return newest != nil && newest.written.Len() > 0
}

// checkRest is the pause after each bundle of 256 entries: a start has better things to do.
const checkRest = 5 * time.Millisecond

// check reads all files of the logs once, and has damaged logs written again from the first entry.
func (k *Keeper) check(ctx context.Context) {
	for _, g := range k.generations() {
		l, err := k.logOf(g)
		if err == nil {
			err = l.Check(ctx, g.PublicKey, checkRest)
		}
		if errors.Is(err, errDamaged) {
			k.damaged(g.Base, l, err)
		} else if err != nil && ctx.Err() == nil {
			k.log.Warn("the files of the audit trail cannot be read back; the next start tries it again", "error", err, "folder", l.dir)
		}
	}
}

// damaged has a log written again from the first entry.
func (k *Keeper) damaged(base int64, l Log, err error) {
	k.log.Warn("files of the audit trail are damaged or lost; they are written again", "error", err, "folder", l.dir)
	k.mu.Lock()
	defer k.mu.Unlock()
	k.fromFirst[base] = true
	if k.again != nil {
		k.again()
	}
}

// errAgain has the checkpoints read from the first one.
var errAgain = errors.New("the trail has another generation")

// errEnd ends a run at the trail's end.
var errEnd = errors.New("the trail has no more checkpoints")

// Run writes the logs up to the trail's end as it is now.
func (k *Keeper) Run(ctx context.Context) error {
	for {
		err := k.follow(ctx, func() error { return errEnd })
		switch {
		case errors.Is(err, errEnd):
			return nil
		case !errors.Is(err, errAgain) && !errors.Is(err, errDamaged):
			return err
		}
	}
}

// follow writes the logs until something fails. worked is called at each end.
func (k *Keeper) follow(ctx context.Context, worked func() error) error {
	generations := k.generations()
	if len(generations) == 0 {
		return audit.ErrUnavailable
	}
	from, err := k.open(generations)
	if err != nil {
		return err
	}
	err = k.trail.Checkpoints(ctx, from, func(c audit.Kept) error {
		return k.take(ctx, generations, c)
	}, func() error {
		if err := k.flush(ctx); err != nil {
			return err
		}
		return worked()
	})
	for _, w := range k.writers {
		w.reset() // unwritten entries are read again
	}
	return err
}

// open opens the logs of the generations, and gives the checkpoint to go on with.
func (k *Keeper) open(generations []audit.Generation) (from uint64, err error) {
	from = math.MaxUint64
	for i, g := range generations {
		w, err := k.writer(g)
		if err != nil {
			return 0, err
		}
		if ended := i+1 < len(generations); !ended || w.from == 0 || w.written.Len() < g.Size {
			from = min(from, w.from)
		}
	}
	return from, nil
}

// logOf gives the log of a generation, the same for as long as the keeper lives.
func (k *Keeper) logOf(g audit.Generation) (Log, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	l, err := k.store.logOf(g.Origin, g.PublicKey, k.logs)
	if err == nil {
		k.logs[g.Origin] = l
	}
	return l, err
}

// writer opens the log of a generation, unless it is open and sound.
func (k *Keeper) writer(g audit.Generation) (*writer, error) {
	l, err := k.logOf(g)
	if err != nil {
		return nil, err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if w := k.writers[g.Base]; w != nil && w.key == g.PublicKey && !k.fromFirst[g.Base] {
		return w, nil
	}
	w, err := openWriter(l, g, k.trail, k.fromFirst[g.Base])
	if err != nil {
		return nil, err
	}
	k.writers[g.Base], k.whole = w, false
	delete(k.fromFirst, g.Base) // after a crash, check finds the damage again
	return w, nil
}

// take adds a checkpoint to the log of its generation. It passes over an unprovable one,
// as the next one may be provable.
func (k *Keeper) take(ctx context.Context, generations []audit.Generation, c audit.Kept) error {
	w := k.writerOf(&c)
	if w == nil {
		if len(k.generations()) != len(generations) {
			return errAgain
		}
		return nil
	}
	err := w.add(ctx, c)
	if errors.Is(err, errUnproven) {
		if !w.unproven {
			k.log.Error("a checkpoint of the audit trail does not continue its published log; it is not published, unless a later one proves it", "error", err, "folder", w.dir)
		}
		w.unproven = true
		return nil
	}
	if w.unproven { // what this one proves may include what was passed over
		k.whole, w.unproven = false, err != nil
	}
	return k.failed(c.Base, w, err)
}

// writerOf is the writer of the generation whose key has signed c; nil where none is known.
func (k *Keeper) writerOf(c *audit.Kept) *writer {
	if w := k.writers[c.Base]; w != nil && w.key == c.PublicKey {
		return w
	}
	return nil
}

// flush writes the steps in hand.
func (k *Keeper) flush(ctx context.Context) error {
	for base, w := range k.writers {
		if err := k.failed(base, w, w.write(ctx)); err != nil {
			return err
		}
		if w.lost > 0 {
			k.log.Error("entries are lost in the audit trail and in its files alike; they stand empty in the entry bundles", "entries", w.lost, "folder", w.dir)
			w.lost = 0
		}
	}
	if k.whole {
		return nil
	}
	err := k.complete(ctx)
	k.whole = err == nil
	return err
}

// failed has a log with damaged files written again from the first entry.
func (k *Keeper) failed(base int64, w *writer, err error) error {
	if errors.Is(err, errDamaged) {
		k.damaged(base, w.Log, err)
	}
	return err
}

// Check has every file of the log read back and held against its newest checkpoint: see
// [verify.Files]. errDamaged names the first one that is lost, or unlike the signed tree. Of
// archived entries only the hashes are checked. It rests after each bundle for rest.
func (l Log) Check(ctx context.Context, publicKey string, rest time.Duration) error {
	_, c, err := l.signed(publicKey)
	if err != nil {
		return err
	}
	found, err := verify.Files(ctx, l.dir, c.Origin, publicKey, l.archivedEnd, rest)
	if err != nil {
		return err
	}
	for _, f := range found {
		if f.From < 0 || !f.OfCheckpoints() { // else it is about what was signed, as is a gap in the numbers
			return fmt.Errorf("%w: %s", errDamaged, f)
		}
	}
	return nil
}
