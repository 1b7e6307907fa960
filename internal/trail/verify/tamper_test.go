package verify

import (
	"bytes"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/auditrelay/auditrelay/internal/testbed/trailtest"
	"github.com/auditrelay/auditrelay/internal/trail/proof"
)

// tampered is a changed log, with the right findings.
type tampered struct {
	files files
	what  string
	known [][]byte // checkpoints from elsewhere
	// right reports whether a finding names the change; each one must, and there is one.
	right func(proof.Finding) bool
}

// tamperer changes logs by a seed.
type tamperer struct {
	tb    testing.TB
	r     *rand.Rand
	log   *testLog
	whole files
	later *testLog // the same log, further on
	size  int64
}

const tamperSize = 900

// TestTamperingIsFoundAndNamed runs cases of one seed each.
func TestTamperingIsFoundAndNamed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, tamperingIsFound) // however long it takes, what is forged has the log's time
}

func tamperingIsFound(t *testing.T) {
	l := newTestLog(t, "example.com/log", 0)
	fillTamperLog(t, l)
	whole := l.write(t).clone()
	o := Options{Policy: policy(t, 0, l.key.verifier), Workers: 1}
	sound(t, check(t, whole, o))
	later := &testLog{key: l.key, leaves: slices.Clone(l.leaves), hashes: slices.Clone(l.hashes), files: files{}}
	later.add(t, records(5000, 5040)...)
	var kinds []string
	for _, seed := range trailtest.Seeds(t, 250) {
		m := &tamperer{t, rand.New(rand.NewPCG(seed, 11)), l, whole, later, int64(len(l.leaves))}
		c := m.any()
		o := o
		o.Known = c.known
		report := check(t, c.files, o)
		kinds = append(kinds, strings.Fields(c.what)[0])
		require.NotEmpty(t, report.Integrity.Findings, "seed %d: %s was not found", seed, c.what)
		for _, f := range report.Integrity.Findings {
			require.True(t, c.right(f), "seed %d: %s was named wrongly: %s", seed, c.what, f)
		}
		require.Empty(t, report.Completeness.Findings, "seed %d: %s", seed, c.what)
	}
	trailtest.Tell(t, kinds)
}

func fillTamperLog(t *testing.T, l *testLog) {
	t.Helper()
	for i := range tamperSize {
		if i%150 == 77 {
			l.add(t, bytes.Repeat(record(i), 700))
			continue
		}
		l.add(t, record(i))
		if i%90 == 50 {
			l.sign(t)
		}
	}
	l.sign(t)
}

func (m *tamperer) any() tampered {
	all := []func() tampered{
		m.flip, m.remove, m.truncate, m.extend, m.swapFiles, m.swapEntries, m.repeat, m.drop, m.forgeEntry, m.forgeTile,
		m.rollCheckpoint, m.rollAll, m.forgeCheckpoint, m.replaceLog, m.twoHistories, m.reorderHistory, m.dropLine, m.forgeLine,
	}
	return all[m.r.IntN(len(all))]()
}

func (m *tamperer) file(with ...string) string {
	var names []string
	for _, name := range slices.Sorted(maps.Keys(m.whole)) {
		if len(with) == 0 || slices.ContainsFunc(with, func(prefix string) bool { return strings.HasPrefix(name, prefix) }) {
			names = append(names, name)
		}
	}
	return names[m.r.IntN(len(names))]
}

// ofFile expects findings about one file only.
func ofFile(name string) func(proof.Finding) bool {
	return func(f proof.Finding) bool { return f.File == name }
}

func (m *tamperer) flip() tampered {
	name := m.file()
	f := m.whole.clone()
	at := m.r.IntN(len(f[name]))
	if name == proof.CheckpointFile || name == proof.HistoryFile {
		at = m.signedByte(f[name])
	}
	f[name] = bytes.Clone(f[name])
	f[name][at] ^= 1 << m.r.IntN(8)
	return tampered{f, fmt.Sprintf("flipped byte %d of %s", at, name), nil, m.ofDamaged(name)}
}

// signedByte is a place outside of signature lines of unknown keys: nobody can check
// those.
func (m *tamperer) signedByte(data []byte) int {
	for {
		at := m.r.IntN(len(data))
		start := bytes.LastIndexByte(data[:at], '\n') + 1
		if !bytes.Contains(data, []byte(`{"seq"`)) {
			start = 0
		}
		if bytes.Count(data[start:at+1], []byte("— ")) <= 1 && !bytes.HasSuffix(data[start:at+2], []byte("\xe2\x80")) {
			return at
		}
	}
}

// ofDamaged expects findings about a file, and the checkpoint's where the history lacks it.
func (m *tamperer) ofDamaged(name string) func(proof.Finding) bool {
	if name != proof.HistoryFile {
		return ofFile(name)
	}
	return func(f proof.Finding) bool {
		return f.File == proof.HistoryFile || f.File == proof.CheckpointFile && f.Kind == proof.KindCheckpoint
	}
}

func (m *tamperer) remove() tampered {
	name := m.file()
	f := m.whole.clone()
	delete(f, name)
	return tampered{f, "removed " + name, nil, m.ofDamaged(name)}
}

func (m *tamperer) truncate() tampered {
	name := m.file()
	f := m.whole.clone()
	keep := m.r.IntN(len(f[name]))
	f[name] = f[name][:keep]
	return tampered{f, fmt.Sprintf("truncated %s to %d bytes", name, keep), nil, m.ofDamaged(name)}
}

// extend appends to a file what is well-formed there: an entry, a hash, or other bytes.
func (m *tamperer) extend() tampered {
	name := m.file()
	f := m.whole.clone()
	more := []byte("x\n")
	switch {
	case strings.HasPrefix(name, "tile/entries/"):
		more = proof.AppendBundle(nil, record(50_000))
	case strings.HasPrefix(name, "tile/"):
		more = bytes.Repeat([]byte{7}, tlog.HashSize)
	}
	f[name] = append(bytes.Clone(f[name]), more...)
	return tampered{f, "extended " + name, nil, m.ofDamaged(name)}
}

func (m *tamperer) swapFiles() tampered {
	kind := []string{"tile/entries/", "tile/0/", "records/"}[m.r.IntN(3)]
	a, b := m.file(kind), m.file(kind)
	for a == b {
		b = m.file(kind)
	}
	f := m.whole.clone()
	f[a], f[b] = f[b], f[a]
	return tampered{f, fmt.Sprintf("swapped %s and %s", a, b), nil, func(f proof.Finding) bool { return f.File == a || f.File == b }}
}

// ofEntries expects findings about these entries only.
func ofEntries(entries ...int64) func(proof.Finding) bool {
	return func(f proof.Finding) bool {
		for i := f.From; i <= f.To; i++ {
			if !slices.Contains(entries, i) {
				return false
			}
		}
		return f.From >= 0
	}
}

// bundle picks a bundle and an entry of it.
func (m *tamperer) entry() (name string, first int64, at int) {
	n := m.r.Int64N((m.size + width - 1) / width)
	w := int(min(width, m.size-n*width))
	return proof.BundlePath(n, w), n * width, m.r.IntN(w)
}

func (m *tamperer) swapEntries() tampered {
	name, first, a := m.entry()
	f := m.whole.clone()
	b := 0
	f[name] = withLeaves(f[name], func(leaves [][]byte) [][]byte {
		for b = a; b == a; b = m.r.IntN(len(leaves)) {
			continue
		}
		leaves[a], leaves[b] = leaves[b], leaves[a]
		return leaves
	})
	right := ofEntries(first+int64(a), first+int64(b))
	return tampered{f, "swapped two entries of " + name, nil, func(f proof.Finding) bool { return right(f) && f.Kind == proof.KindMoved }}
}

func (m *tamperer) repeat() tampered {
	name, first, a := m.entry()
	f := m.whole.clone()
	f[name] = withLeaves(f[name], func(leaves [][]byte) [][]byte {
		leaves[a] = leaves[(a+1)%len(leaves)]
		return leaves
	})
	right := ofEntries(first + int64(a))
	return tampered{f, "repeated an entry of " + name, nil, func(f proof.Finding) bool { return right(f) && f.Kind == proof.KindMissing }}
}

// drop takes an entry out: those after it move.
func (m *tamperer) drop() tampered {
	name, first, a := m.entry()
	f := m.whole.clone()
	f[name] = withLeaves(f[name], func(leaves [][]byte) [][]byte { return slices.Delete(leaves, a, a+1) })
	gone := first + int64(a)
	return tampered{f, fmt.Sprintf("dropped entry %d", gone), nil, func(f proof.Finding) bool {
		return f.Kind == proof.KindMissing && f.From == gone && f.To == gone || f.Kind == proof.KindMoved && f.From > gone && f.File == name
	}}
}

func (m *tamperer) forgeEntry() tampered {
	name, first, a := m.entry()
	f := m.whole.clone()
	f[name] = withLeaves(f[name], func(leaves [][]byte) [][]byte {
		leaves[a] = record(10_000 + m.r.IntN(1000))
		return leaves
	})
	right := ofEntries(first + int64(a))
	return tampered{f, fmt.Sprintf("forged entry %d", first+int64(a)), nil, func(f proof.Finding) bool { return right(f) && f.Kind == proof.KindAltered }}
}

// forgeTile forges an entry with its hash, up to the root: then no one can name the entry
// of the chunk it was, unless a checkpoint was signed within.
func (m *tamperer) forgeTile() tampered {
	forged := &testLog{key: m.log.key, files: files{}}
	at := m.r.IntN(int(m.size))
	for i, leaf := range m.log.leaves {
		if i == at {
			leaf = record(20_000)
		}
		forged.add(m.tb, leaf)
	}
	f := m.whole.clone()
	maps.DeleteFunc(forged.write(m.tb), func(name string, _ []byte) bool { return strings.HasPrefix(name, "records/") })
	maps.Copy(f, forged.files)
	first := int64(at) / width * width
	return tampered{f, fmt.Sprintf("forged entry %d with all its hashes", at), nil, func(f proof.Finding) bool {
		return f.Kind == proof.KindUnproven && f.To >= int64(at) && f.From <= int64(at) && f.From >= first-width
	}}
}

func (m *tamperer) rollCheckpoint() tampered {
	f := m.whole.clone()
	lines := m.lines()
	old := lines[m.r.IntN(len(lines)-1)]
	f[proof.CheckpointFile] = []byte(old.Checkpoint)
	return tampered{f, "rolled the checkpoint back", nil, ofFile(proof.CheckpointFile)}
}

// rollAll puts an older copy of the whole log there; a checkpoint from elsewhere tells.
func (m *tamperer) rollAll() tampered {
	known := m.later.checkpoint(m.tb, int64(len(m.later.leaves)))
	right := ofEntries(m.after()...)
	return tampered{m.whole, "rolled everything back", [][]byte{known}, func(f proof.Finding) bool { return right(f) && f.Kind == proof.KindMissing }}
}

func (m *tamperer) after() (entries []int64) {
	for i := m.size; i < int64(len(m.later.leaves)); i++ {
		entries = append(entries, i)
	}
	return entries
}

func (m *tamperer) forgeCheckpoint() tampered {
	f := m.whole.clone()
	stranger := newKey(m.tb, "example.com/stranger").signers[0]
	text, _, _ := strings.Cut(string(m.log.newest), "\n\n")
	signed, err := note.Sign(&note.Note{Text: text + "\n"}, stranger)
	require.NoError(m.tb, err)
	f[proof.CheckpointFile] = signed
	return tampered{f, "forged the checkpoint", nil, ofFile(proof.CheckpointFile)}
}

// replaceLog puts another's log in its place.
func (m *tamperer) replaceLog() tampered {
	other := newTestLog(m.tb, "example.com/stranger", 0)
	other.add(m.tb, records(0, 10+m.r.IntN(300))...)
	other.sign(m.tb)
	return tampered{other.write(m.tb), "replaced the log", nil, func(f proof.Finding) bool { return f.Kind == proof.KindKey }}
}

// twoHistories signs another tree with the right key; a checkpoint from elsewhere tells.
func (m *tamperer) twoHistories() tampered {
	other := &testLog{key: m.log.key, files: files{}}
	other.add(m.tb, m.log.leaves[:70]...)
	other.add(m.tb, records(30_000, 30_000+600)...)
	other.sign(m.tb)
	known := m.log.checkpoint(m.tb, 71+m.r.Int64N(500))
	return tampered{other.write(m.tb), "two histories", [][]byte{known}, func(f proof.Finding) bool { return f.Kind == proof.KindHistory }}
}

func (m *tamperer) lines() (all []proof.Line) {
	for _, text := range m.texts() {
		all = append(all, mustLine(m.tb, text))
	}
	return all
}

func (m *tamperer) texts() [][]byte {
	all := bytes.SplitAfter(m.whole[proof.HistoryFile], []byte("\n"))
	return all[:len(all)-1]
}

func (m *tamperer) reorderHistory() tampered {
	f, lines := m.whole.clone(), slices.Clone(m.texts())
	a := m.r.IntN(len(lines) - 1)
	lines[a], lines[a+1] = lines[a+1], lines[a]
	f[proof.HistoryFile] = bytes.Join(lines, nil)
	return tampered{f, "reordered the history", nil, ofHistory}
}

func ofHistory(f proof.Finding) bool {
	return f.File == proof.HistoryFile || f.File == proof.CheckpointFile
}

func (m *tamperer) dropLine() tampered {
	f := m.whole.clone()
	i := m.r.IntN(len(m.texts()))
	f[proof.HistoryFile] = withoutLine(f[proof.HistoryFile], i)
	return tampered{f, fmt.Sprintf("dropped line %d of the history", i+1), nil, ofHistory}
}

// forgeLine signs another root for a size of the history with the right key.
func (m *tamperer) forgeLine() tampered {
	f, lines := m.whole.clone(), slices.Clone(m.texts())
	i := m.r.IntN(len(lines) - 1)
	other := &testLog{key: m.log.key, files: files{}}
	other.add(m.tb, records(40_000, 40_000+50+90*i)...)
	lines[i] = spellLine(m.tb, proof.Line{Seq: uint64(i + 1), Key: m.log.key.verifier, Checkpoint: string(other.checkpoint(m.tb, int64(len(other.leaves))))})
	f[proof.HistoryFile] = bytes.Join(lines, nil)
	return tampered{f, "forged a line of the history", nil, func(f proof.Finding) bool {
		return f.Kind == proof.KindHistory && f.From == int64(i+1) && f.To == f.From || ofHistory(f) && f.Kind == proof.KindCheckpoint
	}}
}

// Of a log with two changes at once, in any files, nothing is said to hold unless all of it is as it was:
// no change makes up for another one.
func TestNoChangeHidesAnother(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newTestLog(t, "example.com/log", 0)
		fillTamperLog(t, l)
		whole := l.write(t).clone()
		later := &testLog{key: l.key, leaves: slices.Clone(l.leaves), hashes: slices.Clone(l.hashes), files: files{}}
		later.add(t, records(5000, 5040)...)
		undone := 0
		for _, seed := range trailtest.Seeds(t, 100) {
			m := &tamperer{t, rand.New(rand.NewPCG(seed, 12)), l, whole, later, int64(len(l.leaves))}
			first := m.any()
			m.whole = files{}
			for name, data := range first.files {
				if len(data) > 0 { // nothing more can be done to the others
					m.whole[name] = data
				}
			}
			all := []func() tampered{m.flip, m.remove, m.truncate, m.extend, m.putBack, m.swapFiles}
			if len(m.whole) < len(whole)-1 { // another log, with fewer files
				all = all[:5]
			}
			second := all[m.r.IntN(len(all))]()
			for name, data := range first.files {
				if _, there := second.files[name]; !there && len(data) == 0 {
					second.files[name] = data
				}
			}
			o := Options{Policy: policy(t, 0, l.key.verifier), Workers: 1, Known: append(first.known, l.newest)}
			report := check(t, second.files, o)
			same := !strings.HasPrefix(first.what, "rolled everything")
			for name, data := range whole {
				same = same && bytes.Equal(data, second.files[name])
			}
			require.Equal(t, same, report.Integrity.Holds, "seed %d: %s, and %s", seed, first.what, second.what)
			if same {
				undone++
			}
		}
		require.NotZero(t, undone, "sometimes the second change undoes the first one")
	})
}

// putBack puts the files back that the log had at first, except perhaps for one.
func (m *tamperer) putBack() tampered {
	f := m.whole.clone()
	maps.Copy(f, m.log.files)
	if name := m.file(); m.r.IntN(2) == 0 && m.whole[name] != nil {
		f[name] = m.whole[name]
	}
	return tampered{f, "put all files back, except perhaps one", nil, nil}
}
