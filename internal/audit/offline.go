package audit

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Message is one message of the trail's streams.
type Message struct {
	Seq     uint64
	Subject string
	Header  nats.Header
	Data    []byte
}

// Reader calls fn with each readable message of a stream in order, and returns the
// newest sequence of the stream. A missing stream has none. fn's error ends it.
type Reader func(ctx context.Context, stream string, fn func(Message) error) (last uint64, err error)

// readStream is the Reader of an open trail.
func (t *Trail) readStream(ctx context.Context, name string, fn func(Message) error) (uint64, error) {
	stream := t.entries
	if name == t.checkpointsName() {
		stream = t.checkpoints
	}
	return scan(ctx, stream, "", func(seq uint64, msg jetstream.Msg) error {
		return fn(Message{seq, msg.Subject(), msg.Headers(), msg.Data()})
	})
}

// VerifyOffline is [Trail.Verify] of a trail without a relay. Of o it takes
// StreamPrefix, KeyFile, ForwardedFile, Copy, Published and End. Unnamed are the problems, and the
// restored entries, without a name in the trail; a start would name them. A missing key, or one other than the signer's, is a problem
// if anything was signed.
func VerifyOffline(ctx context.Context, o Options, read Reader) (report Report, unnamed []Problem, err error) {
	c, err := newCodec()
	if err != nil {
		return Report{}, nil, err
	}
	defer c.close()
	key, keyErr := o.loadKey()
	r := &examiner{
		prefix: o.StreamPrefix, pinFile: o.pinFile(), forwardedFile: o.ForwardedFile, published: o.Published, key: key, codec: c, read: read, copies: o.Copy,
		marked: isMarked(key, markFile(o.pinFile())), pinExpected: keyErr == nil, still: true,
	}
	x, err := r.examine(ctx)
	if err != nil {
		return Report{}, nil, fmt.Errorf("verify audit trail: %w", err)
	}
	x.checkEnd(o)
	if o.KeyFile != "" || keyErr == nil { // nobody but the relay needs to have another
		x.checkKey(key, keyErr)
	}
	return x.report, x.named.unnamed(slices.Concat(x.report.Problems, x.report.Restored)), nil
}

// checkEnd holds the entries against the note of their end.
func (x *examination) checkEnd(o Options) {
	if o.End == nil {
		return
	}
	if n, noted := int64(len(x.leaves)), int64(o.End(entriesName(o.StreamPrefix))); noted > max(n, x.knownEnd()) {
		x.problem("truncated", n, noted-1, "the trail ends before them")
	}
}

func (x *examination) checkKey(key keyPair, err error) {
	last := x.gens[len(x.gens)-1]
	const goesOn = "the next start begins a new generation, unless it is put back"
	switch {
	case x.knownEnd() == 0 && x.keptSeq == 0 && x.pinText == nil: // nothing was signed
	case errors.Is(err, fs.ErrNotExist):
		x.problem("key", 0, 0, "the signing key is gone; %s", goesOn)
	case err != nil:
		x.problem("key", 0, 0, "the signing key: %v; %s", err, goesOn)
	case last.PublicKey != "" && !key.isOwn(last.PublicKey):
		x.problem("key", 0, 0, "the signing key is not the one that signed before, %s; %s", last.PublicKey, goesOn)
	}
}
