// Package audit is the trail: an append-only log of what changed, whose
// entries can be proven complete and unaltered.
//
// Entry i is leaf i of a Merkle tree (RFC 6962, golang.org/x/mod/sumdb/tlog).
// The tree's root is signed as the trail grows (C2SP tlog-checkpoint), and
// every signed checkpoint is kept, with the hashes of the entries that it
// added. Entries and checkpoints each live in a JetStream stream that denies
// deletes and purges. Whoever can still change the files below finds that
// the entries no longer give the signed roots: see [Trail.Verify].
//
// What a trail cannot show: entries younger than the newest checkpoint (a few
// seconds, see [Options].SignEvery) are not signed yet. And one who holds the
// signing key can sign another history; a copy of a checkpoint kept elsewhere
// convicts him.
package audit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/auditrelay/auditrelay/internal/streams"
)

// Options say where a trail is kept and how it is signed.
type Options struct {
	// StreamPrefix begins the names of the two streams and their subjects.
	StreamPrefix string
	// Replicas of streams that are made; 0 is 1.
	Replicas int
	// Origin names the trail: the key that is generated, and so the first
	// line of each checkpoint. A key that exists keeps the name it has.
	Origin string
	// KeyFile holds the signing key in the note form. It is generated when the
	// trail is empty. The newest checkpoint is kept beside it, as
	// KeyFile + ".checkpoint", so that a roll-back of both streams is found
	// too. Relays that share the streams share the key.
	KeyFile string
	// SignEvery is the least time between two checkpoints. Default 2s.
	SignEvery time.Duration
	// Logger and Registerer may be nil.
	Logger     *slog.Logger
	Registerer prometheus.Registerer
}

// Trail is an open trail. Its methods may be called concurrently.
type Trail struct {
	js          jetstream.JetStream
	entries     jetstream.Stream
	checkpoints jetstream.Stream
	prefix      string
	key         keyPair
	pinFile     string
	codec       *codec
	log         *slog.Logger
	metrics     *metrics

	// turn is the lock of what follows, as a channel so that waiting for it
	// ends with a context. Whoever appends or signs holds it.
	turn    chan struct{}
	tree    tree        // over every entry that was read or appended
	signed  tree        // at the newest checkpoint
	pending []tlog.Hash // leaves of [signed.n, tree.n)
	keptSeq uint64      // the newest checkpoint's sequence
	broken  error       // set once the trail is found damaged; nothing is added then

	size atomic.Int64  // tree.n, for readers without the turn
	grew chan struct{} // of one place: there is something to sign
	stop context.CancelFunc
	done chan struct{} // closed when the signer has ended
}

// Open opens the trail, makes it where there is none, and begins to sign.
//
// It reads every entry back and checks it as [Trail.Verify] does; a damaged
// trail is an error (ErrDamaged) that names the entries, and is not touched.
// That costs one read of the whole trail and, until it returns, 64 bytes of
// memory an entry; after that a Trail holds the tree's edge only.
func Open(ctx context.Context, js jetstream.JetStream, o Options) (*Trail, error) {
	t, err := open(ctx, js, o)
	if err != nil {
		return nil, fmt.Errorf("open audit trail: %w", err)
	}
	ctx, t.stop = context.WithCancel(context.WithoutCancel(ctx))
	go t.signLoop(ctx, cmp.Or(o.SignEvery, 2*time.Second))
	return t, nil
}

func open(ctx context.Context, js jetstream.JetStream, o Options) (*Trail, error) {
	t := &Trail{
		js: js, prefix: o.StreamPrefix, pinFile: o.KeyFile + ".checkpoint",
		log: cmp.Or(o.Logger, slog.New(slog.DiscardHandler)), metrics: newMetrics(o.Registerer),
		turn: make(chan struct{}, 1), grew: make(chan struct{}, 1), done: make(chan struct{}),
	}
	err := streams.Await(ctx, t.log, "the audit trail's streams", func(ctx context.Context) (err error) {
		if t.entries, err = openStream(ctx, js, streamConfig(o.StreamPrefix+"_AUDIT", o.StreamPrefix+".audit.>", o.Replicas)); err != nil {
			return err
		}
		t.checkpoints, err = openStream(ctx, js, streamConfig(o.StreamPrefix+"_CHECKPOINTS", t.checkpointSubject(), o.Replicas))
		return err
	})
	if err != nil {
		return nil, err
	}
	if err := t.openKey(o.KeyFile, o.Origin); err != nil {
		return nil, err
	}
	if t.codec, err = newCodec(); err != nil {
		return nil, err
	}
	return t, streams.Await(ctx, t.log, "the audit trail's entries", t.restore)
}

// openKey loads the key, or generates it for a trail that nothing is signed in
// yet: a new key for a signed trail would hide that the old one is lost.
func (t *Trail) openKey(file, origin string) error {
	key, err := loadKey(file)
	if errors.Is(err, fs.ErrNotExist) {
		if t.checkpoints.CachedInfo().State.LastSeq > 0 {
			return fmt.Errorf("the trail is signed, but its key is gone: %w", err)
		}
		key, err = generateKey(file, origin)
	}
	if err != nil {
		return err
	}
	if key.Name() != origin {
		t.log.Warn("the audit trail keeps the origin of its key", "origin", key.Name(), "configured", origin)
	}
	t.key = key
	return nil
}

// restore reads the trail back and takes up where it ends.
func (t *Trail) restore(ctx context.Context) error {
	found, err := t.examine(ctx)
	if err != nil {
		return err
	}
	if err := found.report.Err(); err != nil {
		return err
	}
	t.signed, t.keptSeq = found.signed, found.keptSeq
	t.pending = slices.Clone(found.leaves[found.signed.n:])
	t.tree = t.signed.grown(t.pending...)
	t.grown()
	return nil
}

// grown tells the others that the tree is larger. Needs the turn.
func (t *Trail) grown() {
	t.size.Store(t.tree.n)
	t.metrics.entries.Set(float64(t.tree.n))
	if t.tree.n > t.signed.n {
		select {
		case t.grew <- struct{}{}:
		default: // the signer knows already
		}
	}
}

// lock takes the turn.
func (t *Trail) lock(ctx context.Context) error {
	select {
	case t.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("wait for the trail: %w", ctx.Err())
	}
}

func (t *Trail) unlock() { <-t.turn }

// Size is the number of entries that this Trail has seen. Another relay on the
// same streams may have added more.
func (t *Trail) Size() int64 { return t.size.Load() }

// PublicKey is the key that checkpoints are checked with, in the note form.
func (t *Trail) PublicKey() string { return t.key.public }

func (t *Trail) checkpointSubject() string { return t.prefix + ".audit-checkpoints" }

// Close signs what is not signed yet, and releases the Trail. The connection
// stays open: it is the caller's.
func (t *Trail) Close(ctx context.Context) error {
	t.stop()
	<-t.done
	defer t.codec.close()
	if err := t.sign(ctx); err != nil {
		return fmt.Errorf("close audit trail: %w", err)
	}
	return nil
}
