package verify

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/auditrelay/auditrelay/internal/trail/proof"
)

// Options are held against a trail.
type Options struct {
	// Policy has the trusted keys: of the first generation, or any. Nil: only consistency
	// can be shown. Another generation of the same name may have the same public key.
	Policy *proof.Policy
	// Known are signed checkpoints from elsewhere, such as yesterday's: the trail must
	// hold their trees still.
	Known [][]byte
	// Whole is set for an export or an archive: it has all bundles, also those that the trail says to
	// be archived.
	Whole bool
	// Here are names of the folder that is verified: what the trail says to be archived there has to be there.
	Here []string
	// Live is set for a trail in use: its newest checkpoint may come while it is read.
	Live bool
	// Stopped is set for a data directory: a crash may have left a history ahead of its
	// checkpoint.
	Stopped bool
	// Now is held against the newest signature; zero: it is not.
	Now time.Time
	// Workers read and hash in parallel, and each rests after a bundle. Default: one a processor,
	// without rest.
	Workers int
	Rest    time.Duration
	// Progress is told how many entries of how many are read. May be nil.
	Progress func(done, total int64)
}

// Trail verifies all generations of a trail: the folders below fetch, the oldest first; ""
// is fetch itself.
func Trail(ctx context.Context, fetch Fetch, dirs []string, o Options) (Report, error) {
	t := &trailCheck{o: &o, report: &Report{Trusted: o.Policy != nil}}
	t.complete = newCompleteness(t.report)
	for _, dir := range dirs {
		if err := t.log(ctx, fetch.below(dir), dir); err != nil {
			return Report{}, fmt.Errorf("verify the trail: %w", err)
		}
	}
	if len(dirs) == 0 {
		t.report.Integrity.about(proof.KindCheckpoint, "", "", "there is no log")
	}
	t.known()
	t.setApart()
	t.complete.end(o.Now)
	t.report.close()
	return *t.report, nil
}

// trailCheck verifies generation by generation.
type trailCheck struct {
	o        *Options
	report   *Report
	complete *completeness
	seq      uint64 // the newest checkpoint of the generation before
}

func (t *trailCheck) log(ctx context.Context, fetch Fetch, dir string) error {
	l := &logCheck{fetch: fetch, o: t.o, report: t.report, complete: t.complete, firstSeq: t.seq + 1}
	origins, key, begun, err := stated(ctx, fetch)
	if err != nil || !begun && t.o.Stopped { // a killed relay had not begun to publish the log: the trail's own log tells of it
		return err
	}
	if len(origins) == 0 {
		t.report.Integrity.about(proof.KindCheckpoint, "", dir, "no checkpoint can be read, of the file and of the history")
		return nil
	}
	l.origin = origins[max(0, slices.IndexFunc(origins, t.o.knows))] // of several, the policy's
	l.base = proof.BaseOf(l.origin)
	if t.o.Policy != nil {
		l.policy, err = t.o.follow(l.origin, t.complete.endorsed, func(p *proof.Policy) bool { return p.Logs[0].Key == key })
		l.trusted = err == nil
		if err != nil {
			t.report.Integrity.about(proof.KindKey, l.origin, "", "%v", err)
		}
	}
	t.complete.opened = opening{}
	named := len(t.complete.endorsed)
	made, err := l.run(ctx)
	if err != nil {
		return err
	}
	if !l.trusted {
		t.complete.endorsed = t.complete.endorsed[:named]
	}
	t.chain(made)
	t.report.Logs = append(t.report.Logs, made)
	t.seq = l.seq
	return nil
}

// follow is the policy for a log: with the newest of the keys named by signed entries that is the
// log's, else with the policy's own.
func (o *Options) follow(origin string, endorsed []string, isOf func(*proof.Policy) bool) (proof.Policy, error) {
	policy, err := PolicyFor(*o.Policy, origin)
	if err != nil {
		return policy, err
	}
	for _, key := range slices.Backward(endorsed) {
		renamed, err := proof.Renamed(key, origin)
		if err != nil {
			continue
		}
		if named, err := policy.WithLogs(proof.Log{Key: renamed}); err == nil && isOf(&named) {
			o.Policy = &named // from now on the old key may sign nothing
			return named, nil
		}
	}
	return policy, nil
}

// knows reports whether a log is one of the policy's.
func (o *Options) knows(origin string) bool {
	if o.Policy == nil {
		return false
	}
	_, err := PolicyFor(*o.Policy, origin)
	return err == nil
}

// stated reads what a log says of itself: its names, by its checkpoint and the first lines of its
// history, and the key of the first line, as far as they can be read. Nothing vouches for them. Without a
// checkpoint and a whole line it is not begun.
func stated(ctx context.Context, fetch Fetch) (origins []string, key string, begun bool, err error) {
	note, missing, err := fetch.read(ctx, proof.CheckpointFile)
	if err != nil {
		return nil, "", false, err
	}
	notes, begun := [][]byte{note}, !missing
	body, missing, err := fetch.open(ctx, proof.HistoryFile)
	if err != nil {
		return nil, "", false, err
	}
	if !missing {
		defer func() { _ = body.Close() }()
		lines, _ := readLines(bufio.NewReaderSize(body, maxLine), 2)
		begun = begun || len(lines) > 0
		for _, text := range lines {
			var line proof.Line
			if json.Unmarshal(text, &line) == nil {
				notes, key = append(notes, []byte(line.Checkpoint)), cmp.Or(key, line.Key)
			}
		}
	}
	for _, note := range notes {
		if origin, text := originIn(note); text {
			origins = append(origins, origin)
		}
	}
	return origins, key, begun, nil
}

// originIn is the log that a signed note says to be of. It checks no signature.
func originIn(note []byte) (string, bool) {
	c, err := proof.ReadCheckpoint(note)
	return c.Origin, err == nil
}

// PolicyFor is the policy for a generation: with the log of its origin, or else with a log of the same
// trail, renamed. Of several, it is that of the newest generation before it, since a rotation replaces a key.
func PolicyFor(p proof.Policy, origin string) (proof.Policy, error) {
	var kin []proof.Log
	for _, l := range p.Logs {
		switch name := proof.NameOf(l.Key); {
		case name == origin:
			return p.WithLogs(l)
		case proof.TrailOf(name) == proof.TrailOf(origin):
			kin = append(kin, l)
		}
	}
	if len(kin) == 0 {
		return proof.Policy{}, fmt.Errorf("the log %q is none of the policy's", origin)
	}
	before := func(l proof.Log) int64 {
		if base := proof.BaseOf(proof.NameOf(l.Key)); base <= proof.BaseOf(origin) {
			return base
		}
		return -1
	}
	l := slices.MaxFunc(kin, func(a, b proof.Log) int { return cmp.Compare(before(a), before(b)) })
	key, err := proof.Renamed(l.Key, origin)
	if err != nil {
		return proof.Policy{}, err
	}
	return p.WithLogs(proof.Log{Key: key, URL: l.URL})
}

// chain holds the generation before against the first entry of this one.
func (t *trailCheck) chain(made Log) {
	if len(t.report.Logs) == 0 {
		if made.Base > 0 {
			t.report.Completeness.run(proof.KindNotCovered, made.Origin, 0, made.Base-1, "", "the generations of these entries are not here")
		}
		return
	}
	before, said := t.report.Logs[len(t.report.Logs)-1], t.complete.opened
	if said.Previous == nil || said.index != made.Base {
		t.report.Integrity.about(proof.KindKey, made.Origin, "", "its first entry does not name the generation before")
		return
	}
	if said.Previous.Origin != before.Origin || said.Previous.Size != before.Size || said.Previous.Root != before.Root {
		t.report.Integrity.about(proof.KindHistory, made.Origin, "", "its first entry names a generation %q of %d entries before it; that one is %q, with %d proven ones, or another root",
			said.Previous.Origin, said.Previous.Size, before.Origin, before.Size)
	}
	switch end := before.Base + before.Size; {
	case end > made.Base && made.Size > 0:
		t.report.Integrity.about(proof.KindHistory, made.Origin, "", "it begins with entry %d, and the generation before it has signed the entries up to %d: the trail has two histories", made.Base, end-1)
	case end < made.Base:
		t.report.Completeness.run(proof.KindNotCovered, before.Origin, end, made.Base-1, "", "no checkpoint covers them: the generation ended before")
	}
}

// known names the checkpoints from elsewhere of unknown generations.
func (t *trailCheck) known() {
	for _, note := range t.o.Known {
		origin, text := originIn(note)
		if !text || !slices.ContainsFunc(t.report.Logs, func(l Log) bool { return l.Origin == origin }) {
			t.report.Integrity.about(proof.KindHistory, "", "", "a checkpoint known from elsewhere is of the log %q, which is not here", origin)
		}
	}
}
