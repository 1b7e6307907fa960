// Package audit is the trail: an append-only log of changes, provably complete
// and unaltered.
//
// Entry i is a leaf of a Merkle tree (RFC 6962, golang.org/x/mod/sumdb/tlog) over
// canonical JSON (RFC 8785). The tree's root is signed as the trail grows (C2SP
// tlog-checkpoint). Every signed checkpoint is kept, with the hashes of the entries it
// added. Entries and checkpoints each have a log of the store, of which nothing is ever
// trimmed; entry i has position i+1. Anyone may change the files below, but then the
// entries no longer give the signed roots: see [VerifyOffline].
//
// A trail cannot show two things. Entries younger than the newest checkpoint (a few
// seconds, see [Options].SignEvery) are not signed yet. And the holder of the signing
// key can sign another history; a copy of a checkpoint kept elsewhere convicts him.
//
// # Damage
//
// Damage stops nothing. At the start, and after any unsound finding, the trail reads
// itself back (restore.go). It keeps the places of entries that are gone from the end, names
// every unnamed problem in a trail.damaged entry, and goes on. The leaf of a lost signed
// entry comes from the hashes in the checkpoints; an unsigned one gets a placeholder. A lost
// entry that the trail's files still have is read from there: its leaf hash proves it.
//
// Only another key (lost or rotated), or a lost signed tree, begins a new generation
// (generation.go): a tree with its own origin and key, as two trees under the old origin
// would both be signed. This happens at a start only: two relays with different keys would
// otherwise answer each other for ever. A generation is a log of its own in the sense of
// C2SP; the entries' indexes and event ids go on over all of them. Settings and streaming
// compare with the newest sound entry.
//
// # Types
//
// A [Reader] reads the two logs, of a running relay or of a stopped one. A [Trail] is a Reader
// with an appender and a keeper. The appender has the tree with its key (sign.go), the leaves and an
// index of the newest entries (index.go); whoever uses it takes turns. The keeper works in the
// background: it reads all entries back, and signs in time. Each newest checkpoint is offered to
// whoever asks witnesses (offer.go).
//
// One Trail writes the logs at a time. If another one does so too, as a relay that was thought
// dead, then the logs take what either appends only after what it has read: so each reads the
// other's entries, and the checkpoints are of one tree.
//
// # Delivery
//
// [Trail.Forward] puts each entry into the journal, with an id made of the name of its
// generation's key and its index, so every sink gets the audit events too.
package audit

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/auditrelay/auditrelay/internal/retry"
	"github.com/auditrelay/auditrelay/internal/store"
	tlogproof "github.com/auditrelay/auditrelay/internal/trail/proof"
)

// Options say how a trail is signed, and what else tells of it.
type Options struct {
	KeySource
	Evidence

	// Shared: other relays write the same logs, one at a time. The checkpoint next to this relay's
	// key may be older than theirs then.
	Shared bool
	// Certain, where set, returns once no other relay can write the logs, and an error where that takes
	// too long. It is asked between the draft of a checkpoint and its signature: what a relay that was
	// frozen has added since, nobody else may know.
	Certain func(context.Context) error
	// SignEvery is the least time between two checkpoints. Default 2s.
	SignEvery time.Duration
	// Heartbeat is the longest time between two checkpoints, in whole seconds; the tree is
	// signed again where it has not grown. 0: it is not.
	Heartbeat time.Duration
	// Logger and Registerer may be nil.
	Logger     *slog.Logger
	Registerer prometheus.Registerer
}

// Evidence says where a trail is noted outside of its two logs, except next to its key.
type Evidence struct {
	// ForwardedFile, where set, keeps the place of the newest entry handed on: see
	// [Trail.Forwarded]. A trail that ends before it, or has another root there, was put back
	// to an earlier state, which is a problem.
	ForwardedFile string
	// Files are what was derived from the trail before; nil for none.
	Files Files
	// SalvageDir takes copies of a damaged key or checkpoint file. Empty: none are kept.
	SalvageDir string
}

// Files are the trail's files for public tools. They are derived from it, and nothing vouches
// for them: the trail takes nothing from there without a proof.
type Files interface {
	// Records calls handle with the records of the leaves in [from, to) of the tree with an origin,
	// in order and as far as they can be read. An entry that is lost in the log is read from there,
	// if it has the signed leaf.
	Records(origin string, from, to int64, handle func(n int64, record []byte) error) error
	// Tiles gives the hash tiles of the tree with an origin. Witnesses get consistency proofs
	// from there.
	Tiles(origin string) tlog.TileReader
	// Published gives the newest checkpoint of each tree, without its number. The files are written after the
	// trail: a trail with less in it was put back, as with [Evidence].ForwardedFile.
	Published() []tlogproof.Line
	// History calls handle with each checkpoint that the files ever had.
	History(handle func(tlogproof.Line))
}

// Trail is an open trail. Its methods may be called concurrently.
type Trail struct {
	*Reader  // reads
	appender // appends, signs and restores
	keeper   // works in the background

	store   store.Store
	options Options
	log     *slog.Logger
	metrics *metrics

	forwarded forwarded // the note of the newest entry handed on
}

// appender is the state of a trail that grows.
type appender struct {
	// turn is the lock of the parts up to newest, as a channel: waiting for it ends with a context.
	// Whoever appends or signs holds it.
	turn chan struct{}
	signer
	reading
	known known

	additions chan *addition // entries on their way

	fileKey  atomic.Pointer[keyPair] // as its place has it; set before opened is closed, then by Rotate only
	rotating sync.Mutex              // held by Rotate
	stale    atomic.Bool             // something unsound was met: restore is due
	signedAt atomic.Int64            // when this process signed last, Unix time in ns; 0: not yet
}

// reading is how the trail was read back, and why it cannot be used.
type reading struct {
	keyLoss  string // why this process has another key since the last restore, if something was signed before
	restored bool   // it was opened once
	lastTry  time.Time
	outage   retry.Failure
}

// keeper is the work in the background: it reads the trail back, and signs in time.
type keeper struct {
	stop      context.CancelFunc
	grew      chan struct{} // of one place: there is something to sign
	news      chan struct{} // of one place: there is something to forward
	done      chan struct{} // closed when nobody signs in time any more
	offers    chan Offer    // of one place: the newest checkpoint, for witnesses
	witnessed atomic.Bool   // somebody asks them
	cosigned  atomic.Int64  // the number of entries under the newest checkpoint that all witnesses have signed
}

// retryPause is the wait between two tries to open an unusable trail.
const retryPause = 5 * time.Second

// openPatience is how long Open waits for a trail to be read: a small one is open by then.
const openPatience = time.Second

// Open opens the trail in a store, makes it where there is none, and begins to sign.
//
// Everything is read back, and checked as [VerifyOffline] does, in the background where it takes
// longer than a moment. Methods with a context wait for it, and the others do not know the trail
// yet. An entry names the damage, once, and the trail goes on. The reading takes 130 bytes of memory
// an entry; later a Trail holds 32 bytes an entry, and the index of the newest entries.
//
// An unusable trail (its servers are away, its key may not be read) is tried again as soon as
// possible: until then its methods return ErrUnavailable.
func Open(ctx context.Context, s store.Store, o Options) (*Trail, error) {
	t := &Trail{
		Reader:   &Reader{codec: newCodec(), files: o.Files, tried: make(chan struct{}), opened: make(chan struct{})},
		appender: appender{turn: make(chan struct{}, 1), additions: make(chan *addition, groupEntries), signer: signer{beat: beat{every: o.Heartbeat}}},
		keeper:   keeper{grew: make(chan struct{}, 1), news: make(chan struct{}, 1), done: make(chan struct{}), offers: make(chan Offer, 1)},
		store:    s, options: o, log: cmp.Or(o.Logger, slog.New(slog.DiscardHandler)), metrics: newMetrics(o.Registerer),
	}
	t.view.Store(&view{})
	t.suspect = t.readBackBecause
	ctx, t.stop = context.WithCancel(context.WithoutCancel(ctx))
	t.turn <- struct{}{} // for the first try
	go t.keep(ctx, cmp.Or(o.SignEvery, 2*time.Second))
	select {
	case <-t.tried:
	case <-time.After(openPatience):
	}
	return t, nil
}

// firstTry opens the trail for the first time, in the turn that Open took.
func (t *Trail) firstTry(ctx context.Context) {
	defer close(t.tried)
	defer t.unlock()
	if err := t.attempt(ctx, t.open); err != nil && ctx.Err() == nil {
		t.log.Error("the audit trail cannot be used; events are taken and delivered all the same, and it is tried again", "error", err)
	}
}

// open opens the logs and the key, and restores. Needs the turn.
func (t *Trail) open(ctx context.Context) error {
	if !t.restored {
		if err := t.Reader.open(ctx, t.store); err != nil {
			return err
		}
		if t.fileKey.Load() == nil { // else it was opened, perhaps made, before a restore that failed
			if err := t.openKey(); err != nil {
				return err
			}
		}
	}
	t.stale.Store(false) // before: anything met from now on counts
	if err := t.restore(ctx); err != nil {
		return err
	}
	if !t.restored {
		t.restored = true
		close(t.opened)
	}
	return nil
}

// ready restores a trail before its first use, and after anything unsound was met.
// Needs the turn.
func (t *Trail) ready(ctx context.Context) error {
	failure := t.view.Load().failure
	if t.restored && failure == nil && !t.stale.Load() {
		return nil
	}
	if failure != nil && time.Since(t.lastTry) < retryPause {
		return failure
	}
	return t.attempt(ctx, t.open)
}

// attempt reads the trail, notes how that ended, and logs a failure now and then. Needs the turn.
func (t *Trail) attempt(ctx context.Context, read func(context.Context) error) error {
	err := read(ctx)
	if err != nil && ctx.Err() != nil { // the caller gave up, which says nothing of the trail: the next one reads it
		t.stale.Store(true)
		return err
	}
	t.lastTry = time.Now()
	v := *t.view.Load()
	switch {
	case err == nil && v.failure != nil:
		fields, _ := t.outage.Over()
		t.log.Info("the audit trail can be used again", fields...)
	case err != nil && t.outage.Again("") && t.restored:
		t.log.Error("the audit trail cannot be used at present; it is tried again", append(t.outage.Fields(), "error", err)...)
	}
	v.failure = nil
	t.metrics.usable.Set(1)
	if err != nil {
		v.failure = fmt.Errorf("%w: %w", ErrUnavailable, err)
		t.metrics.usable.Set(0)
	}
	t.view.Store(&v)
	return v.failure
}

// readBackBecause has the trail read back: something in it is not as it should be.
func (t *Trail) readBackBecause(what string) {
	if !t.stale.Swap(true) {
		t.log.Warn("the audit trail is read back", "because", what)
	}
	nudge(t.grew)
}

// grown tells the others of the larger tree. Needs the turn.
func (t *Trail) grown() {
	t.metrics.entries.Set(float64(t.next()))
	nudge(t.news)
	if t.entriesOfTree() > t.signed.Len() {
		nudge(t.grew)
	}
}

// next is the index of the next entry. Needs the turn.
func (a *appender) next() int64 { return a.known.len() }

// entriesOfTree is the number of entries in the newest generation. Needs the turn.
func (a *appender) entriesOfTree() int64 { return a.next() - a.base }

// nudge wakes whoever listens to a channel of one place.
func nudge(sleeper chan<- struct{}) {
	select {
	case sleeper <- struct{}{}:
	default: // it knows already
	}
}

// lock takes the turn.
func (a *appender) lock(ctx context.Context) error {
	select {
	case a.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("wait for the trail: %w", ctx.Err())
	}
}

func (a *appender) unlock() { <-a.turn }

// use takes the turn of a usable trail.
func (t *Trail) use(ctx context.Context) error {
	if err := t.lock(ctx); err != nil {
		return err
	}
	err := t.ready(ctx)
	if err != nil {
		t.unlock()
	}
	return err
}

// Size is the number of entries; 0 while the trail was not read yet.
func (t *Trail) Size() int64 { return t.known.len() }

// Close ends the work in the background, and signs the unsigned entries and, of a running
// heartbeat, its end. Reads go on. The store stays open: it is the caller's.
func (t *Trail) Close(ctx context.Context) error {
	t.stop()
	<-t.done
	if err := t.isOpen(ctx); err != nil {
		return nil //nolint:nilerr // there is nothing to sign
	}
	if err := t.signAll(ctx, true); err != nil {
		return fmt.Errorf("close audit trail: %w", err)
	}
	return nil
}
