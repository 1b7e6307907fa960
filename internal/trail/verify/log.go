package verify

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/auditrelay/auditrelay/internal/trail/audit"
	"github.com/auditrelay/auditrelay/internal/trail/proof"
)

// logCheck verifies one generation. It belongs to one goroutine, except for its reading
// methods.
type logCheck struct {
	fetch    Fetch
	o        *Options
	report   *Report
	complete *completeness

	origin   string
	base     int64        // index of its first entry
	trusted  bool         // there is a policy for it
	policy   proof.Policy // with a log of the origin
	firstSeq uint64       // the first one of its history; 0: not known

	history []signed        // in order; the same tree signed again only once
	seq     uint64          // the newest of the history
	unread  bool            // the line before was bad, and was named
	lost    bool            // there is no history, as was named
	again   []audit.Signing // the signatures of its newest tree
}

// run verifies the log, and returns its proven part.
func (l *logCheck) run(ctx context.Context) (Log, error) {
	made := Log{Origin: l.origin, Base: l.base}
	if l.trusted {
		made.Key = l.policy.Logs[0].Key
	}
	newest, err := l.readNewest(ctx, &made)
	if err == nil {
		newest, err = l.plausible(ctx, newest)
	}
	if err != nil || newest.size == 0 {
		return made, err
	}
	s, err := l.scan(ctx, newest.size, l.sizes(newest.size))
	if err != nil {
		return made, err
	}
	v := &solver{l: l, s: s}
	if err := v.readTiles(ctx); err != nil {
		return made, err
	}
	made.Size, made.Root = v.prove()
	if err := v.name(ctx); err != nil {
		return made, err
	}
	l.compare(s, s.roots(v.proven[1]), made.Size)
	l.report.Entries += made.Size
	l.witnessed(made.Size)
	return made, nil
}

// readNewest reads checkpoint and history, and returns the newest checkpoint to hold the
// entries against.
func (l *logCheck) readNewest(ctx context.Context, made *Log) (newest signed, err error) {
	if err := l.readHistory(ctx); err != nil {
		return signed{}, err
	}
	// The checkpoint is read after the history: of a log in use it can only be newer.
	data, missing, err := l.fetch.read(ctx, proof.CheckpointFile)
	if err != nil {
		return signed{}, err
	}
	if missing {
		l.fileFinding(proof.CheckpointFile, "it is not there")
	} else if s, by, err := l.open(data); err != nil {
		l.fileFinding(proof.CheckpointFile, "%v", err)
	} else {
		newest = s
		made.describe(by)
		l.takeNewest(s)
	}
	for _, s := range l.history {
		if s.size > newest.size {
			newest = s
		}
	}
	l.takeKnown(newest)
	return newest, nil
}

func (g *Log) describe(by proof.Cosigned) {
	if !by.Time.IsZero() {
		g.Signed = by.Time.UTC()
	}
	for _, w := range by.Witnesses {
		g.Witnesses = append(g.Witnesses, w.Witness)
	}
}

// takeNewest holds the checkpoint's file against the history.
func (l *logCheck) takeNewest(s signed) {
	l.report.Checkpoints++
	if s.size == 0 && s.root != (proof.Edge{}).Root() {
		l.fileFinding(proof.CheckpointFile, "it has not the root of an empty tree")
	}
	var last signed
	if n := len(l.history); n > 0 {
		last = l.history[n-1]
	}
	i := slices.IndexFunc(l.history, func(h signed) bool { return h.size == s.size && h.root == s.root })
	fresh := i < 0 || i == len(l.history)-1 && !slices.Contains(l.again, s.Signing)
	if fresh {
		l.complete.pulse.Add(s.Signing, s.seq)
	}
	switch {
	case i >= 0 && s.size < last.size && !l.o.Stopped:
		l.fileFinding(proof.CheckpointFile, "it covers %d entries, the newest of the history %d: an older one was put in its place", s.size, last.size)
	case i >= 0:
		if fresh && !l.o.Live {
			l.fileFinding(proof.HistoryFile, "it does not have the newest signature, which is in %s: its end was cut off", proof.CheckpointFile)
		}
		l.history[i].witnessed = l.history[i].witnessed || s.witnessed
	case s.size > last.size && l.o.Live: // it was signed since
		l.history = append(l.history, s)
	default:
		if !l.lost { // else it was named before
			l.fileFinding(proof.CheckpointFile, "it is not in the history")
		}
		l.history = append(l.history, s)
	}
}

// takeKnown takes in the checkpoints known from elsewhere.
func (l *logCheck) takeKnown(newest signed) {
	for _, note := range l.o.Known {
		if origin, _ := originIn(note); origin != l.origin {
			continue // of another generation; Trail says if it is of none
		}
		s, _, err := l.open(note)
		if err != nil {
			l.fileFinding("", "a checkpoint known from elsewhere: %v", err)
			continue
		}
		s.elsewhere = true
		if s.size > newest.size {
			l.entryFinding(proof.KindMissing, newest.size, s.size-1, "", "a checkpoint known from elsewhere covers %d entries, this log's newest %d: the log went back", s.size, newest.size)
			continue
		}
		l.history = append(l.history, s)
	}
}

// witnessed reports the entries without a quorum of witnesses.
func (l *logCheck) witnessed(size int64) {
	if !l.trusted || len(l.policy.Witnesses) == 0 {
		return
	}
	covered := int64(0)
	for _, s := range l.history {
		if s.witnessed {
			covered = max(covered, s.size)
		}
	}
	switch {
	case covered == 0 && size > 0:
		l.report.Integrity.about(proof.KindQuorum, l.origin, "", "no checkpoint has the cosignatures that the policy asks for")
	case covered < size:
		l.report.Completeness.run(proof.KindUnwitness, l.origin, l.base+covered, l.base+size-1, "", "no checkpoint over them has the cosignatures that the policy asks for")
	}
}

// roots are the roots of the trees of s.sizes; zero where not known.
func (s *scanned) roots(chunks []tlog.Hash) []tlog.Hash {
	roots := make([]tlog.Hash, len(s.sizes))
	var e proof.Edge
	for i, size := range s.sizes {
		for e.Len() < size/width {
			if e.Len() >= int64(len(chunks)) || chunks[e.Len()] == (tlog.Hash{}) {
				return roots
			}
			e.Add(chunks[e.Len()])
		}
		switch {
		case size%width == 0:
			roots[i] = e.Root()
		case s.tails[i] != (tlog.Hash{}):
			roots[i] = e.RootWith(s.tails[i])
		}
	}
	return roots
}

const (
	// largestTree bounds the memory, to 1 GB (see scan).
	largestTree = 1 << 32
	// Of a tree above the size probedTree, so many chunks are looked for first. Below it, all
	// files of a forged size are looked for within a second.
	probedTree = 1 << 24
	probes     = 64
)

// plausible is the newest checkpoint whose tree can be there. A number is signed in no time, so
// a size alone must not cost memory, or a look for billions of files. The entries given up
// are named.
func (l *logCheck) plausible(ctx context.Context, newest signed) (signed, error) {
	for newest.size > probedTree {
		kind, why, err := l.implausible(ctx, newest.size)
		if err != nil || why == "" {
			return newest, err
		}
		older := l.below(newest.size)
		l.entryFinding(kind, older.size, newest.size-1, "", "a checkpoint covers them, and %s", why)
		newest = older
	}
	return newest, nil
}

// implausible says why the tree of a size cannot be there; empty if it can.
func (l *logCheck) implausible(ctx context.Context, size int64) (kind, why string, err error) {
	if size > largestTree {
		return proof.KindUnproven, fmt.Sprintf("this version verifies %d entries at most", int64(largestTree)), nil
	}
	found := 0
	for range probes { // chosen by chance, so that nobody can have made just these
		c := &chunk{n: rand.Int64N(size / width), width: width}
		hashes, _, err := l.readHashes(ctx, 0, c.n, c.width)
		bundle, bundleErr := l.readBundle(ctx, c)
		if err = cmp.Or(err, bundleErr); err != nil {
			return "", "", err
		}
		if len(hashes)+len(bundle) > 0 {
			found++
		}
	}
	if found < probes/2 {
		return proof.KindMissing, "most of their files are not there", nil
	}
	return "", "", nil
}

// below is the history's largest tree smaller than size.
func (l *logCheck) below(size int64) (found signed) {
	for _, s := range l.history {
		if s.size < size && s.size > found.size {
			found = s
		}
	}
	return found
}
