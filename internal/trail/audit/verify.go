package audit

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"time"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/auditrelay/auditrelay/internal/jsontext"
	"github.com/auditrelay/auditrelay/internal/store"
	"github.com/auditrelay/auditrelay/internal/store/durable"
	tlogproof "github.com/auditrelay/auditrelay/internal/trail/proof"
)

// examination is a trail under examination: a Report with the state to go on from.
type examination struct {
	*Reader
	options     Options
	key         keyPair // without a secret where there is none
	marked      bool    // the key is known to have signed
	pinExpected bool    // the pin of a used key was kept before this began
	still       bool    // nobody signs meanwhile

	report Report
	leaves []tlog.Hash // of all entries as they are, by index; zero where one is missing
	most   int64       // entries that there may have been: see mostLost

	openings  map[int64]Opening   // the first entries of generations, by index
	rotations rotations           // by the trail's own entries
	named     namedDamage         // by the trail's own entries
	history   []Kept              // those with a good signature, in order, without heartbeats
	times     []keptTime          // of all with a good signature, in order
	pin       *Kept               // the one next to the key, where it is good
	pinText   []byte              // as it is; nil where there is none
	forwarded *Place              // the newest entry handed on or published, where it is known
	given     string              // to whom: givenToSinks or inFiles
	published []tlogproof.Line    // the newest checkpoints of the files
	foreign   []Kept              // of these, under keys unknown to the trail
	copied    map[int64]tlog.Hash // the signed leaves of entries found only there
	newest    map[string]int64    // the newest entry of each resource, sound or not
	notes     map[[8]byte]bool    // those with a good signature, by their sums
	keptSeq   uint64              // the newest checkpoint's position
	goodSeq   uint64              // the newest good one's

	gens   []Generation  // the oldest first, at least one
	proven [][]tlog.Hash // the signed leaves of each, zero where they are not known
	signed tree          // of the newest generation, proven by a checkpoint
	best   *Kept         // this checkpoint; nil for none
	end    int64         // the most leaves of it covered by some good checkpoint
}

// begin reads what was noted about the trail elsewhere. The checkpoints come after it, and then the
// entries: each may speak of the next only, and all three grow while they are read.
func (x *examination) begin(ctx context.Context) error {
	x.openings, x.rotations, x.newest = map[int64]Opening{}, rotations{}, map[string]int64{}
	x.copied, x.notes, x.named = map[int64]tlog.Hash{}, map[[8]byte]bool{}, namedDamage{}
	if x.entries != nil {
		state, err := x.entries.State(ctx)
		if err != nil {
			return fmt.Errorf("read the end of the audit trail: %w", err)
		}
		x.most = int64(state.End)
	}
	x.most += mostLost
	note, _ := durable.ReadFile(x.options.ForwardedFile) // without it, other evidence decides
	x.takeForwarded(parseForwarded(note), givenToSinks)
	if x.options.Files != nil {
		x.published = x.options.Files.Published()
	}
	var err error
	if x.pinText, err = durable.ReadFile(x.options.pinFile()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		x.problem(tlogproof.KindPin, -1, -1, "the checkpoint next to the key cannot be read: %v", err)
	}
	return nil
}

// mostLost bounds the entries after the log's end that a checkpoint or a note speaks of. A number is
// signed in no time. So a larger one is named, and decides nothing: no memory is taken for its
// entries, and no places are kept for them.
const mostLost = 1 << 20

// within refuses a checkpoint of more entries than there may have been.
func (x *examination) within(c Kept, err error) (Kept, error) {
	if err == nil && c.Base+c.Size > x.most {
		err = fmt.Errorf("it covers entries up to %d, far more than the log can have lost: it decides nothing", c.Base+c.Size-1)
	}
	return c, err
}

func (x *examination) examine(ctx context.Context) error {
	for _, read := range []func(context.Context) error{x.begin, x.readCheckpoints, x.readLeaves} {
		if err := read(ctx); err != nil {
			return err
		}
	}
	x.readPin()
	keys := x.proveAll()
	now := time.Time{}
	if !x.still {
		now = time.Now()
	}
	x.report.Gaps = x.gaps(keys, now)
	x.endorse()
	x.takePublished()
	x.checkPin()
	x.checkForwarded()
	x.checkForeign()
	x.checkHistory()
	x.setApart()
	last := x.gens[len(x.gens)-1]
	x.report.Entries, x.report.Signed = int64(len(x.leaves)), last.Base+x.signed.Len()
	x.report.Generations = x.gens
	return nil
}

func (x *examination) problem(kind string, from, to int64, format string, args ...any) {
	x.report.Problems = append(x.report.Problems, tlogproof.Finding{Kind: kind, From: from, To: to, Detail: fmt.Sprintf(format, args...)})
}

// checkpointProblem names a checkpoint.
func (x *examination) checkpointProblem(seq uint64, what string) {
	x.report.Problems = tlogproof.Adjoin(x.report.Problems, tlogproof.Finding{Kind: tlogproof.KindCheckpoint, From: int64(seq), To: int64(seq), Detail: what})
}

// readCheckpoints reads those with a good signature, and reports the others.
func (x *examination) readCheckpoints(ctx context.Context) error {
	_, err := each(ctx, x.checkpoints, 1, func(item store.Item) error {
		if item.Gap != nil {
			x.keptSeq = uint64(item.Gap.To)
			x.problem(tlogproof.KindCheckpoint, int64(item.Gap.From), int64(item.Gap.To), "it is missing")
			return nil
		}
		x.keptSeq = uint64(item.Record.Pos)
		c, err := x.within(decodeKept(item.Record))
		if err != nil {
			x.checkpointProblem(x.keptSeq, err.Error())
			return nil
		}
		x.kept(c)
		return nil
	})
	return err
}

// kept takes in a checkpoint with a good signature. Of the many heartbeats, the times
// only.
func (x *examination) kept(c Kept) {
	x.goodSeq = c.Seq
	x.notes[noteSum(c.Note)], x.notes[c.said()] = true, true
	x.times = append(x.times, keptTime{c.Seq, c.Base, c.PublicKey, c.Signing})
	if n := len(x.history); n > 0 && c.repeats(&x.history[n-1]) {
		return
	}
	x.history = append(x.history, c)
}

// keptTime is the time of a kept checkpoint.
type keptTime struct {
	seq    uint64
	base   int64
	public string
	Signing
}

// gaps finds the gaps between the checkpoints of their generation's key; others do not
// count.
func (x *examination) gaps(keys map[int64]string, now time.Time) []Gap {
	var p Pulse
	for _, s := range x.times {
		if keys[s.base] == s.public {
			p.Add(s.Signing, s.seq)
		}
	}
	return p.Gaps(now)
}

// mostMissing bounds the memory for one gap of the log, to 512 MB.
const mostMissing = 1 << 24

// readLeaves hashes every entry, and takes in the trail's entries about itself.
func (x *examination) readLeaves(ctx context.Context) error {
	covered := x.covered()
	_, err := each(ctx, x.entries, 1, func(item store.Item) error {
		if item.Gap != nil {
			if int64(item.Gap.To)-int64(len(x.leaves)) > mostMissing {
				return fmt.Errorf("%w: entries %d to %d are missing, more than can be read back", ErrDamaged, int64(item.Gap.From)-1, int64(item.Gap.To)-1)
			}
			x.extend(int64(item.Gap.To))
			return nil
		}
		index := indexOf(item.Record)
		e, err := x.codec.open(item.Record)
		if errors.Is(err, ErrMissing) {
			x.extend(index + 1)
			return nil
		}
		x.leaves = append(x.leaves, e.Leaf)
		switch {
		case err != nil:
			x.problem(tlogproof.KindMisfiled, index, index, "%v", err)
		case index >= covered && !isCanonical(e.Record): // else its hash tells
			x.problem(tlogproof.KindMisfiled, index, index, "the record is not in canonical form")
		default:
			x.take(&e.Entry)
		}
		return nil
	})
	return err
}

func isCanonical(record []byte) bool {
	canonical, err := jsontext.Canonical(record)
	return err == nil && bytes.Equal(canonical, record)
}

// covered is how many entries the kept checkpoints cover.
func (x *examination) covered() (end int64) {
	for _, c := range x.history {
		end = max(end, c.Base+c.Size)
	}
	return end
}

// extend makes room for entries up to n, without.
func (x *examination) extend(n int64) {
	if more := n - int64(len(x.leaves)); more > 0 {
		x.leaves = append(x.leaves, make([]tlog.Hash, more)...)
	}
}

// take indexes an entry, and reads those of the trail about itself.
func (x *examination) take(e *Entry) {
	x.newest[e.resource()] = max(x.newest[e.resource()], e.Index)
	if !e.isOwn() {
		return
	}
	x.rotations.take(e)
	var o Opening
	if json.Unmarshal(e.Detail, &o) != nil {
		return
	}
	if e.Type == TypeGeneration {
		x.openings[e.Index] = o
	}
	x.named.add(o.Problems)
}

// readPin checks the checkpoint next to the key, with the key or an earlier signer's.
func (x *examination) readPin() {
	if x.pinText == nil {
		return
	}
	c, err := x.within(x.openKnown(x.pinText))
	if err != nil {
		x.problem(tlogproof.KindPin, -1, -1, "the checkpoint next to the key: %v", err)
		return
	}
	x.pin = &c
}

// VerifyOffline reads a trail without a relay and checks everything, as a start does: the signature of
// each checkpoint, the hash of each entry, the positions for gaps, and the key of each entry's record.
// It takes 130 bytes of memory an entry, and about 300 where something is wrong. Of o it takes the
// KeySource and the Evidence. Problems are in the Report; the error is for an unreadable trail. Unnamed are the problems and the restored entries that the trail does not name yet; a
// start would name them. A missing key, or one other than the signer's, is a problem if anything
// was signed.
func VerifyOffline(ctx context.Context, o Options, trail *Reader) (report Report, unnamed []tlogproof.Finding, err error) {
	key, keyErr := o.loadKey()
	x := &examination{Reader: trail, options: o, key: key, marked: isMarked(key, o.markFile()), pinExpected: keyErr == nil, still: true}
	if err := x.examine(ctx); err != nil {
		return Report{}, nil, fmt.Errorf("verify audit trail: %w", err)
	}
	if o.KeyFile != "" || keyErr == nil { // nobody but the relay needs to have another
		x.checkKey(keyErr)
	}
	return x.report, x.named.unnamed(slices.Concat(x.report.Problems, x.report.Restored)), nil
}

func (x *examination) checkKey(err error) {
	last := x.gens[len(x.gens)-1]
	const goesOn = "the next start begins a new generation, unless it is put back"
	switch {
	case x.knownEnd() == 0 && x.keptSeq == 0 && x.pinText == nil: // nothing was signed
	case errors.Is(err, fs.ErrNotExist):
		x.problem(tlogproof.KindKey, -1, -1, "the signing key is gone; %s", goesOn)
	case err != nil:
		x.problem(tlogproof.KindKey, -1, -1, "the signing key: %v; %s", err, goesOn)
	case last.PublicKey != "" && !x.key.isOwn(last.PublicKey):
		x.problem(tlogproof.KindKey, -1, -1, "the signing key is not the one that signed before, %s; %s", last.PublicKey, goesOn)
	}
}
