package audit

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/auditrelay/auditrelay/internal/store"
	"github.com/auditrelay/auditrelay/internal/store/durable"
)

// A start does not wait until the whole trail is read. It goes on from the newest
// checkpoint, signed and with the tree's edge; from the entries after it; and from a
// note on the last reading of everything. Then it reads everything in the background, and
// names damage as a whole reading at the start would.
//
// No checkpoint has the note's content: the generations, the entries without weight, and the
// index of the newest entries. The trail's key signs it, and it names the two logs that were
// read and the entry that it ends with. A start without a good note, or with other logs, reads
// everything first: nothing that was read before says anything about logs that somebody has
// put there since. Whoever puts an older note back hides newer damage in the same logs until
// the reading in the background ends. Nobody gains a root: the tree comes from checkpoints
// only.

// verifiedNote has the findings of a reading of the whole trail.
type verifiedNote struct {
	// Logs are the IDs of the logs of entries and of checkpoints.
	Logs        [2]string    `json:"logs"`
	Generations []Generation `json:"generations"`
	Unsound     []span       `json:"unsound,omitempty"`
	Problems    int          `json:"problems,omitempty"`
	// Entries is how many entries the index knows, and Leaf the hash of the last one.
	Entries int64     `json:"entries"`
	Leaf    tlog.Hash `json:"leaf"`
	// Newest has the index of each resource's newest entry.
	Newest map[string]int64 `json:"newest,omitempty"`
}

const (
	// verifiedHead begins the note, and the signed text. No checkpoint looks like it: their
	// second line is a number.
	verifiedHead = "auditrelay/verified-trail/v4\n"
	// maxResume bounds the entries that a start reads after the newest checkpoint and after
	// the note. The note is written again after half as many.
	maxResume = 4096
	// paceEvery and pacePause bound the reading in the background, to some 20,000
	// records a second.
	paceEvery = 1000
	pacePause = 50 * time.Millisecond
)

func (t *Trail) verifiedFile() string {
	return strings.TrimSuffix(t.options.pinFile(), ".checkpoint") + ".verified"
}

// readVerified reads the note, if it is good.
func (t *Trail) readVerified() (v verifiedNote, good bool) {
	data, err := durable.ReadFile(t.verifiedFile())
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

// noteReading writes the note, if the newest reading was of all entries and nothing has been
// found since. A failure costs the next start a whole reading.
func (t *Trail) noteReading(ctx context.Context) {
	select {
	case <-t.read:
	default:
		return // the reading has not ended
	}
	if err := t.keepVerified(ctx); err != nil && ctx.Err() == nil {
		t.log.Warn("the findings of a reading of the audit trail cannot be noted; the next start reads all of it first", "error", err)
	}
}

// keepVerified writes the note. A crash before its rename leaves none, or an older one,
// and a start reads it as such: see above.
func (t *Trail) keepVerified(ctx context.Context) error {
	if err := t.lock(ctx); err != nil {
		return err
	}
	defer t.unlock()
	shown := t.view.Load()
	if len(shown.copied) > 0 || t.options.Shared || !t.sound || t.stale.Load() || t.failure != nil || t.next() == 0 {
		return nil // a start has more to ask then
	}
	v := verifiedNote{Generations: shown.generations, Unsound: shown.unsound, Problems: shown.problems, Entries: t.next(), Newest: t.newest.all()}
	var err error
	if v.Logs, err = t.logIDs(ctx); err != nil {
		return err
	}
	if v.Leaf, err = t.readLeaf(ctx, v.Entries-1); err != nil {
		return err
	}
	body, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("encode note: %w", err)
	}
	text := append([]byte(verifiedHead), append(body, '\n')...)
	sig, err := t.fileKey.Load().sign(ctx, signedOfVerified(text))
	if err != nil {
		return fmt.Errorf("sign note: %w", err)
	}
	if err := durable.WriteFile(t.verifiedFile(), append(text, base64.StdEncoding.EncodeToString(sig)+"\n"...)); err != nil {
		return err
	}
	t.lastNoted.Store(v.Entries)
	return nil
}

// logIDs are the IDs of the logs of entries and of checkpoints.
func (t *Trail) logIDs(ctx context.Context) (ids [2]string, err error) {
	for i, log := range []store.Log{t.entries, t.checkpoints} {
		state, err := log.State(ctx)
		if err != nil {
			return ids, fmt.Errorf("read the id of a log of the audit trail: %w", err)
		}
		ids[i] = state.ID.String()
	}
	return ids, nil
}

// dropVerified removes the note before damage is named: it does not know of it. The keeper
// writes the next one.
func (t *Trail) dropVerified() {
	t.sound = false
	t.lastNoted.Store(-maxResume)
	_ = os.Remove(t.verifiedFile())
}

// resume opens the trail without reading all of it, and reports whether it could: false
// where anything is not as a clean stop or a kill leaves it. It has the same needs as
// open.
func (t *Trail) resume(ctx context.Context) bool {
	v, good := t.readVerified()
	if !good || t.restored || t.newKey || t.options.Shared || !t.marked {
		return false
	}
	if ids, err := t.logIDs(ctx); err != nil || ids != v.Logs {
		return false
	}
	last := &v.Generations[len(v.Generations)-1]
	key, err := t.fileKey.Load().named(last.Origin)
	if err != nil || key.public != last.PublicKey {
		return false
	}
	c, signed, ok := t.newestSigned(ctx, key, last.Base)
	if !ok {
		return false
	}
	t.key, t.base, t.tree, t.signed, t.pending = key, last.Base, signed.With(), signed, nil
	if !t.resumeEntries(ctx, &v) || !t.fitsForwarded(c) || !t.fitsPublished(c) {
		return false
	}
	t.keptSeq, t.newestNote, t.pinDue = c.seq, []byte(c.text), false
	t.pinned.Store(true)
	t.offer()
	last.Size, last.Root = c.size, c.root
	t.show(&view{generations: v.Generations, unsound: v.Unsound, passed: v.Unsound, problems: v.Problems})
	t.lastNoted.Store(v.Entries)
	t.grown()
	if t.beat.due(false) {
		t.nudge()
	}
	return true
}

// newestSigned is the newest kept checkpoint, if it is the pinned one, of this key and
// generation, and its edge gives its root.
func (t *Trail) newestSigned(ctx context.Context, key keyPair, base int64) (checkpoint, tree, bool) {
	state, err := t.checkpoints.State(ctx)
	if err != nil {
		return checkpoint{}, tree{}, false
	}
	r, err := at(ctx, t.checkpoints, state.End)
	if err != nil || r == nil {
		return checkpoint{}, tree{}, false
	}
	c, err := decodeKept(r)
	if err != nil || c.public != key.public || c.base != base {
		return checkpoint{}, tree{}, false
	}
	text, err := durable.ReadFile(t.options.pinFile())
	if err != nil {
		return checkpoint{}, tree{}, false
	}
	pin, err := openCheckpoint(key.public, text)
	signed, sound := c.alone()
	return c, signed, err == nil && sound && pin.base == base && pin.size == c.size && pin.root == c.root
}

// errNotAsLeft ends a resume: something is not as a clean stop or a kill leaves it.
var errNotAsLeft = errors.New("the trail is not as it was left")

// resumeEntries reads the entries after the newest checkpoint, and those that the note's
// index does not know yet.
func (t *Trail) resumeEntries(ctx context.Context, v *verifiedNote) bool {
	state, err := t.entries.State(ctx)
	end, from := int64(state.End), min(t.next(), v.Entries-1)
	if err != nil || v.Entries <= 0 || end < t.next() || end < v.Entries || end-from > maxResume {
		return false
	}
	if v.Newest == nil {
		v.Newest = map[string]int64{}
	}
	t.newest.set(v.Newest)
	_, err = each(ctx, t.entries, store.Pos(from)+1, func(item store.Item) error {
		if item.Record == nil || item.Record.Kind == kindLost {
			return errNotAsLeft
		}
		index := indexOf(item.Record)
		_, record, err := t.codec.open(item.Record)
		if err != nil || index == v.Entries-1 && leafHash(record) != v.Leaf {
			return errNotAsLeft
		}
		if index >= v.Entries {
			t.newest.add(item.Record.Key, index)
		}
		if index == t.next() {
			t.tree.Add(leafHash(record))
			t.pending = append(t.pending, leafHash(record))
		}
		return nil
	})
	return err == nil && t.next() == end
}

// fitsForwarded holds the tree against the newest entry known to the sinks, as far as it
// is near. The reading in the background knows the rest.
func (t *Trail) fitsForwarded(c checkpoint) bool {
	f, err := readForwarded(t.options.ForwardedFile)
	if f == nil || err != nil {
		return true // a damaged note says nothing: it is written without a sync
	}
	return f.Origin == t.key.Name() && f.Index < t.next() && t.fits(c, f)
}

// fits reports whether the tree up to a place has its root, as far as it is known.
func (t *Trail) fits(c checkpoint, f *Place) bool {
	at, known := c.at(f.Size)
	if behind := f.Size - c.size; behind >= 0 && behind <= int64(len(t.pending)) {
		at, known = t.signed.With(t.pending[:behind]...), true
	}
	return !known || at.Root() == *f.Root
}

// readBack reads all of a resumed trail, at a bounded rate, and has damage named; where
// there is none, it writes the note for the next start.
func (t *Trail) readBack(ctx context.Context) {
	select {
	case <-ctx.Done():
		close(t.read)
		return
	case <-t.opened:
	}
	if x := t.isAsResumed(ctx); x != nil && t.lock(ctx) == nil {
		t.sound = true
		shown := *t.view.Load()
		shown.gaps = x.report.Gaps
		t.view.Store(&shown)
		t.unlock()
	}
	close(t.read)
	t.noteReading(ctx)
}

// isAsResumed reads everything of a resumed trail, and returns what it found if a whole reading at
// the start would have found the same, else nil.
func (t *Trail) isAsResumed(ctx context.Context) *examination {
	if !t.resumed || t.lock(ctx) != nil {
		return nil
	}
	r := t.examiner()
	t.unlock()
	r.paced = true
	before := t.view.Load()
	x, err := r.examine(ctx)
	switch {
	case ctx.Err() != nil:
		return nil
	case err != nil:
		t.log.Warn("the audit trail cannot be read back; the next start tries it again", "error", err)
		return nil
	}
	same := slices.EqualFunc(x.gens, before.generations, func(a, b Generation) bool {
		return a.Base == b.Base && a.Origin == b.Origin && a.PublicKey == b.PublicKey
	})
	news := x.named.unnamed(x.report.Problems)
	if len(news) > 0 || len(x.copied) > 0 || !same || !slices.Equal(unsound(x.report.Problems), before.unsound) {
		t.suspect(cmp.Or(spellOut(news), "it is not what the note of the newest reading says"))
		return nil
	}
	for where, index := range x.newest {
		if !contains(before.passed, index) {
			t.newest.add(where, index)
		}
	}
	return x
}
