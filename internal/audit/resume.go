package audit

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/auditrelay/auditrelay/internal/durable"
	"github.com/auditrelay/auditrelay/internal/pause"
)

// A start does not wait until the whole trail is read. It goes on from the newest
// checkpoint, signed and with the tree's edge; from the entries behind it; and from a
// note on the last reading of everything. Then it reads everything in the background, and
// names damage as a whole reading at the start would.
//
// No checkpoint has the note's content: the generations, and the entries without weight.
// The trail's key signs it, and a start without a good one reads everything first. Who
// puts an older note back hides newer damage, until the reading in the background ends.
// Nobody gains a root: the tree comes from checkpoints only.

// verifiedNote has the findings of a reading of the whole trail.
type verifiedNote struct {
	Generations []Generation `json:"generations"`
	Unsound     []span       `json:"unsound,omitempty"`
	Problems    int          `json:"problems,omitempty"`
	// MissingEntries and MissingCheckpoints are how many sequences up to the newest one
	// have no message.
	MissingEntries     uint64 `json:"missing_entries,omitempty"`
	MissingCheckpoints uint64 `json:"missing_checkpoints,omitempty"`
}

const (
	// verifiedHead begins the note, and the signed text. No checkpoint looks like it: their
	// second line is a number.
	verifiedHead = "auditrelay/verified-trail/v2\n"
	// maxResume bounds the entries read behind the newest checkpoint.
	maxResume = 4096
	// paceEvery and pacePause bound the reading in the background, to some 20,000
	// messages a second.
	paceEvery = 1000
	pacePause = 50 * time.Millisecond
)

func (t *Trail) verifiedFile() string {
	return strings.TrimSuffix(t.pinFile, ".checkpoint") + ".verified"
}

// readVerified reads the note, if it is good.
func (t *Trail) readVerified() (v verifiedNote, good bool) {
	data, err := os.ReadFile(t.verifiedFile())
	if err != nil {
		return v, false
	}
	at := bytes.LastIndexByte(bytes.TrimSuffix(data, []byte("\n")), '\n') + 1
	sig, err := base64.StdEncoding.DecodeString(strings.TrimSpace(string(data[at:])))
	body, headed := bytes.CutPrefix(data[:at], []byte(verifiedHead))
	if err != nil || !headed || !t.fileKey.Load().verifier.Verify(signedOfVerified(data[:at]), sig) || json.Unmarshal(body, &v) != nil {
		return v, false
	}
	return v, len(v.Generations) > 0
}

// signedOfVerified is the signed text of a note: its hash, as a PKCS#11 token may sign no
// more than a kilobyte.
func signedOfVerified(text []byte) []byte {
	return fmt.Appendf(nil, "%s%x\n", verifiedHead, sha256.Sum256(text))
}

// keepVerified writes the note. A crash before its rename leaves none, or an older one,
// and a start reads it as such: see above.
func (t *Trail) keepVerified(ctx context.Context) error {
	shown := t.view.Load()
	if len(shown.copied) > 0 || t.shared { // a start has more to ask then
		return nil
	}
	v := verifiedNote{Generations: shown.generations, Unsound: shown.unsound, Problems: shown.problems}
	entries, err := t.entries.Info(ctx)
	if err != nil {
		return fmt.Errorf("read stream state: %w", err)
	}
	checkpoints, err := t.checkpoints.Info(ctx)
	if err != nil {
		return fmt.Errorf("read stream state: %w", err)
	}
	v.MissingEntries, v.MissingCheckpoints = missingIn(entries), missingIn(checkpoints)
	body, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("encode note: %w", err)
	}
	text := append([]byte(verifiedHead), append(body, '\n')...)
	sig, err := t.fileKey.Load().sign(ctx, signedOfVerified(text))
	if err != nil {
		return fmt.Errorf("sign note: %w", err)
	}
	return durable.WriteFile(t.verifiedFile(), append(text, base64.StdEncoding.EncodeToString(sig)+"\n"...))
}

func missingIn(info *jetstream.StreamInfo) uint64 { return info.State.LastSeq - info.State.Msgs }

// dropVerified removes the note before damage is named: it does not know of it.
func (t *Trail) dropVerified() { _ = os.Remove(t.verifiedFile()) }

// resume opens the trail without reading all of it, and reports whether it could: false
// where anything is not as a clean stop or a kill leaves it. It has the same needs as
// open.
func (t *Trail) resume(ctx context.Context) bool {
	v, good := t.readVerified()
	if !good || t.restored || t.newKey || t.shared || !t.marked {
		return false
	}
	last := &v.Generations[len(v.Generations)-1]
	key, err := t.fileKey.Load().named(last.Origin)
	if err != nil || key.public != last.PublicKey {
		return false
	}
	c, signed, ok := t.newestSigned(ctx, key, last.Base, v.MissingCheckpoints)
	if !ok {
		return false
	}
	t.key, t.base, t.tree, t.signed, t.pending = key, last.Base, signed.grown(), signed, nil
	if !t.resumeEntries(ctx, v.MissingEntries) || !t.fitsForwarded(c) || !t.fitsPublished(c) {
		return false
	}
	t.keptSeq, t.newestNote, t.pinDue = c.seq, []byte(c.text), false
	t.pinned.Store(true)
	t.offer()
	last.Size, last.Root = c.size, c.root
	t.showView(&view{generations: v.Generations, unsound: v.Unsound, passed: v.Unsound, problems: v.Problems})
	t.grown()
	if t.beat.due(false) {
		t.nudge()
	}
	return true
}

// newestSigned is the newest kept checkpoint, if it is the pinned one, of this key and
// generation, and its edge gives its root.
func (t *Trail) newestSigned(ctx context.Context, key keyPair, base int64, missing uint64) (checkpoint, tree, bool) {
	info, err := t.checkpoints.Info(ctx)
	if err != nil || missingIn(info) != missing || int64(info.State.LastSeq) < t.noted(t.checkpointsName()) {
		return checkpoint{}, tree{}, false
	}
	msg, err := t.checkpoints.GetMsg(ctx, info.State.LastSeq)
	if err != nil {
		return checkpoint{}, tree{}, false
	}
	c, err := decodeKept(key, msg.Data, msg.Sequence)
	if err != nil || c.public != key.public || c.base != base {
		return checkpoint{}, tree{}, false
	}
	text, err := os.ReadFile(t.pinFile)
	if err != nil {
		return checkpoint{}, tree{}, false
	}
	pin, err := openCheckpoint(key.public, text)
	signed, sound := c.alone()
	return c, signed, err == nil && sound && pin.base == base && pin.size == c.size && pin.root == c.root
}

// resumeEntries reads the entries behind the newest checkpoint.
func (t *Trail) resumeEntries(ctx context.Context, missing uint64) bool {
	info, err := t.entries.Info(ctx)
	if err != nil {
		return false
	}
	end := int64(info.State.LastSeq)
	if missingIn(info) != missing || end < t.noted(t.entriesName()) || end < t.next() || end-t.next() > maxResume {
		return false
	}
	for t.next() < end {
		msg, leaf, err := t.readLeaf(ctx, t.next())
		if err != nil || msg.Header.Get(lostHeader) != "" {
			return false
		}
		if _, err := t.decode(msg.Subject, msg.Header, msg.Data, msg.Sequence); err != nil {
			return false
		}
		t.tree.grow(leaf)
		t.pending = append(t.pending, leaf)
	}
	return true
}

// fitsForwarded holds the tree against the newest entry known to the sinks, as far as it
// is near. The reading in the background knows the rest.
func (t *Trail) fitsForwarded(c checkpoint) bool {
	f, err := readForwarded(t.forwardedFile)
	if f == nil || err != nil {
		return true // a damaged note says nothing: it is written without a sync
	}
	return f.Origin == t.key.Name() && f.Index < t.next() && t.fits(c, f)
}

// fits reports whether the tree up to a place has its root, as far as it is known.
func (t *Trail) fits(c checkpoint, f *Place) bool {
	at, known := c.at(f.Size)
	if behind := f.Size - c.size; behind >= 0 && behind <= int64(len(t.pending)) {
		at, known = t.signed.grown(t.pending[:behind]...), true
	}
	return !known || at.root() == *f.Root
}

// readBack reads all of a resumed trail, at a bounded rate, and has damage named; where
// there is none, it writes the note for the next start.
func (t *Trail) readBack(ctx context.Context) {
	defer close(t.read)
	select {
	case <-ctx.Done():
		return
	case <-t.opened:
	}
	if t.resumed && !t.isAsResumed(ctx) {
		return
	}
	if err := t.keepVerified(ctx); err != nil && ctx.Err() == nil {
		t.log.Warn("the findings of a reading of the audit trail cannot be noted; the next start reads all of it first", "error", err)
	}
}

// isAsResumed reads everything, and reports whether a whole reading at the start would
// have found the same.
func (t *Trail) isAsResumed(ctx context.Context) bool {
	if err := t.lock(ctx); err != nil {
		return false
	}
	r := t.examiner()
	t.unlock()
	r.read = paced(r.read)
	before := t.view.Load()
	x, err := r.examine(ctx)
	switch {
	case ctx.Err() != nil:
		return false
	case err != nil:
		t.log.Warn("the audit trail cannot be read back; the next start tries it again", "error", err)
		return false
	}
	same := slices.EqualFunc(x.gens, before.generations, func(a, b Generation) bool {
		return a.Base == b.Base && a.Origin == b.Origin && a.PublicKey == b.PublicKey
	})
	news := x.named.unnamed(x.report.Problems)
	if len(news) > 0 || len(x.copied) > 0 || !same || !slices.Equal(unsound(x.report.Problems), before.unsound) {
		t.suspect(cmp.Or(spellOut(news), "it is not what the note of the newest reading says"))
		return false
	}
	t.gaps.Store(&x.report.Gaps)
	return true
}

// paced is a Reader with rests.
func paced(read Reader) Reader {
	return func(ctx context.Context, stream string, fn func(Message) error) (uint64, error) {
		count := 0
		return read(ctx, stream, func(m Message) error {
			if count++; count%paceEvery == 0 {
				if err := pause.For(ctx, pacePause); err != nil {
					return err
				}
			}
			return fn(m)
		})
	}
}
