package verify

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"io/fs"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/auditrelay/auditrelay/internal/trail/proof"
)

func TestASoundLogOfAnySize(t *testing.T) {
	t.Parallel()
	l := newTestLog(t, "example.com/log", 0)
	o := Options{Policy: policy(t, 0, l.key.verifier)}
	at := 0
	for _, size := range []int{1, 2, 3, 255, 256, 257, 511, 512, 513, 700, 1024} {
		l.add(t, records(at, size)...)
		at = size
		l.sign(t)
		r := check(t, l.write(t), o)
		sound(t, r)
		root, err := tlog.TreeHash(int64(size), l)
		require.NoError(t, err)
		assert.Equal(t, []Log{{Origin: "example.com/log", Key: l.key.verifier, Size: int64(size), Root: root, Signed: r.Logs[0].Signed}}, r.Logs)
		assert.EqualValues(t, size, r.Entries)
	}
}

// A third level of tiles begins with 65,536 entries.
func TestALogWithThreeLevels(t *testing.T) {
	t.Parallel()
	l := newTestLog(t, "example.com/log", 0)
	l.add(t, records(0, 66_000)...)
	l.sign(t)
	whole := l.write(t)
	o := Options{Policy: policy(t, 0, l.key.verifier)}
	sound(t, check(t, whole, o))

	f := whole.clone()
	f["tile/2/000.p/1"] = flipped(f["tile/2/000.p/1"], 3)
	f["tile/1/000"] = flipped(f["tile/1/000"], 7*32)
	f["tile/0/007"] = flipped(f["tile/0/007"], 0)
	f["tile/entries/200"] = flipped(f["tile/entries/200"], 4)
	delete(f, "tile/1/001.p/1")
	assert.Equal(t, []string{
		"tile: tile/1/000: it does not have the hashes that were signed",
		"tile: tile/1/001.p/1: it is not there",
		"tile: tile/2/000.p/1: it does not have the hashes that were signed",
		"tile: tile/0/007: it does not have the hashes that were signed",
		"altered: entry 51200: tile/entries/200: it does not have the hash that was signed",
	}, texts(check(t, f, o).Integrity))
}

func texts(v Verdict) (list []string) {
	for _, f := range v.Findings {
		list = append(list, f.String())
	}
	return list
}

func flipped(data []byte, at int) []byte {
	data = bytes.Clone(data)
	data[at] ^= 1
	return data
}

func TestEachBadEntryIsNamed(t *testing.T) {
	t.Parallel()
	l := newTestLog(t, "example.com/log", 0)
	long := bytes.Repeat([]byte("x"), proof.MaxLeaf+1)
	for i := range 600 {
		l.add(t, record(i))
		if i == 300 {
			l.add(t, long)
		}
		if i%100 == 0 {
			l.sign(t)
		}
	}
	l.sign(t)
	whole := l.write(t)
	o := Options{Policy: policy(t, 0, l.key.verifier)}
	sound(t, check(t, whole, o))
	d, _ := proof.ParseDigest(proof.LeafData(long))
	const altered, moved = "it does not have the hash that was signed", "it stands %+d places off"
	for name, c := range map[string]struct {
		tamper func(f files)
		want   []string
	}{
		"altered, in two bundles": {func(f files) {
			f["tile/entries/000"] = withLeaves(f["tile/entries/000"], func(leaves [][]byte) [][]byte {
				leaves[3], leaves[5] = []byte("other"), []byte("other")
				return leaves
			})
			f["tile/entries/002.p/89"] = flipped(f["tile/entries/002.p/89"], 9)
		}, []string{
			"altered: entry 3: tile/entries/000: " + altered, "altered: entry 5: tile/entries/000: " + altered,
			"altered: entry 512: tile/entries/002.p/89: " + altered,
		}},
		"altered in the bundle and the tile": {func(f files) {
			f["tile/entries/001"] = withLeaves(f["tile/entries/001"], func(leaves [][]byte) [][]byte {
				leaves[0] = []byte("other")
				return leaves
			})
			h := tlog.RecordHash([]byte("other"))
			f["tile/0/001"] = append(slices.Clone(h[:]), f["tile/0/001"][32:]...)
		}, []string{"unproven: entries 256 to 511: tile/entries/001: neither they nor their hashes give the signed root"}},
		"removed": {func(f files) {
			f["tile/entries/002.p/89"] = withLeaves(f["tile/entries/002.p/89"], func(leaves [][]byte) [][]byte { return leaves[:80] })
		}, []string{"missing: entries 592 to 600: tile/entries/002.p/89: it has 80 entries, not 89"}},
		"swapped": {func(f files) {
			f["tile/entries/000"] = withLeaves(f["tile/entries/000"], func(leaves [][]byte) [][]byte {
				leaves[1], leaves[4] = leaves[4], leaves[1]
				return leaves
			})
		}, []string{"moved: entry 1: tile/entries/000: it stands +3 places off", "moved: entry 4: tile/entries/000: it stands -3 places off"}},
		"repeated": {func(f files) {
			f["tile/entries/000"] = withLeaves(f["tile/entries/000"], func(leaves [][]byte) [][]byte {
				leaves[1] = leaves[4]
				return leaves
			})
		}, []string{"missing: entry 1: tile/entries/000: it is nowhere, and another entry stands in its place"}},
		"a bundle is gone": {
			func(f files) { delete(f, "tile/entries/001") },
			[]string{"missing: entries 256 to 511: tile/entries/001: it is not there"},
		},
		"a tile is gone":  {func(f files) { delete(f, "tile/0/001") }, []string{"tile: tile/0/001: it is not there"}},
		"a tile is short": {func(f files) { f["tile/1/000.p/2"] = nil }, []string{"tile: tile/1/000.p/2: it has 0 bytes, not 64"}},
		"a record is gone": {
			func(f files) { delete(f, d.Path()) },
			[]string{"missing: entry 301: " + d.Path() + ": the record of a long entry is not there"},
		},
		"a record is altered": {
			func(f files) { f[d.Path()] = flipped(f[d.Path()], 0) },
			[]string{"altered: entry 301: " + d.Path() + ": the record of a long entry does not have the hash that was signed"},
		},
		"the checkpoint is gone":    {func(f files) { delete(f, proof.CheckpointFile) }, []string{"checkpoint: checkpoint: it is not there"}},
		"the history is gone":       {func(f files) { delete(f, proof.HistoryFile) }, []string{"checkpoint: checkpoints: the history of checkpoints is not there"}},
		"both are gone":             {func(f files) { delete(f, proof.HistoryFile); delete(f, proof.CheckpointFile) }, []string{"checkpoint: no checkpoint can be read, of the file and of the history"}},
		"a line is gone":            {func(f files) { f[proof.HistoryFile] = withoutLine(f[proof.HistoryFile], 2) }, []string{"checkpoint: checkpoint 3: checkpoints: the history does not have it"}},
		"the first line is gone":    {func(f files) { f[proof.HistoryFile] = withoutLine(f[proof.HistoryFile], 0) }, []string{"checkpoint: checkpoint 1: checkpoints: the history does not have it"}},
		"the last line is gone":     {func(f files) { f[proof.HistoryFile] = withoutLine(f[proof.HistoryFile], 6) }, []string{"checkpoint: checkpoint: it is not in the history"}},
		"the checkpoint is older":   {func(f files) { f[proof.CheckpointFile] = l.checkpoint(t, 502) }, []string{"checkpoint: checkpoint: it covers 502 entries, the newest of the history 601: an older one was put in its place"}},
		"the checkpoint is flipped": {func(f files) { f[proof.CheckpointFile] = flipped(f[proof.CheckpointFile], 40) }, []string{"checkpoint: checkpoint: open checkpoint: invalid signature for key example.com/log+af60b360"}},
		"the history is flipped": {
			func(f files) { f[proof.HistoryFile] = flipped(f[proof.HistoryFile], 150) },
			[]string{"checkpoint: checkpoints: line 1: open checkpoint: invalid signature for key example.com/log+af60b360"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := whole.clone()
			c.tamper(f)
			r := check(t, f, o)
			assert.Equal(t, c.want, texts(r.Integrity))
			assert.Empty(t, r.Completeness.Findings)
		})
	}
}

// withLeaves changes the leaves of a bundle.
func withLeaves(bundle []byte, change func([][]byte) [][]byte) (changed []byte) {
	leaves, _ := proof.Leaves(bundle) // it is whole
	for _, leaf := range change(leaves) {
		changed = proof.AppendBundle(changed, leaf)
	}
	return changed
}

func withoutLine(history []byte, i int) []byte {
	lines := bytes.SplitAfter(history, []byte("\n"))
	return bytes.Join(slices.Delete(slices.Clone(lines), i, i+1), nil)
}

// The newest signature is of the same tree as the one before, and cut off the history: the
// checkpoint's file shows it. A crash leaves a history ahead of that file.
func TestAHeartbeatCutOffTheHistoryIsFound(t *testing.T) {
	t.Parallel()
	l := newTestLog(t, "example.com/log", 0)
	l.add(t, records(0, 5)...)
	l.sign(t)
	before, short := l.newest, bytes.Clone(l.files[proof.HistoryFile])
	root, err := tlog.TreeHash(5, l)
	require.NoError(t, err)
	c := proof.Checkpoint{Origin: "example.com/log", Size: 5, Root: root, Extensions: []string{"auditrelay/heartbeat 0"}}
	last, err := note.Sign(&note.Note{Text: c.String()}, l.key.signers...)
	require.NoError(t, err)
	text, err := json.Marshal(proof.Line{Seq: 2, Key: l.key.verifier, Checkpoint: string(last)})
	require.NoError(t, err)
	l.files[proof.HistoryFile] = append(l.files[proof.HistoryFile], append(text, '\n')...)
	o := Options{Policy: policy(t, 0, l.key.verifier), Stopped: true}
	l.files[proof.CheckpointFile] = last
	sound(t, check(t, l.write(t), o))
	l.files[proof.CheckpointFile] = before
	sound(t, check(t, l.files, o))
	l.files[proof.CheckpointFile], l.files[proof.HistoryFile] = last, short
	r := check(t, l.files, o)
	require.Len(t, r.Integrity.Findings, 1)
	require.Contains(t, r.Integrity.Findings[0].String(), "its end was cut off")
}

// A line has two signatures, and decoders take more than one spelling of base64: no byte of it
// may change unseen.
func TestEachByteOfAHistorysLineIsVouchedFor(t *testing.T) {
	t.Parallel()
	l := newTestLog(t, "example.com/log", 0)
	l.add(t, records(0, 1)...)
	l.sign(t)
	line := len(l.files[proof.HistoryFile])
	l.add(t, records(1, 2)...)
	l.sign(t) // the newest line stands in the checkpoint's file too
	f, o := l.write(t), Options{Policy: policy(t, 0, l.key.verifier)}
	sound(t, check(t, f, o))
	for at := range line {
		for _, bit := range []int{1, 5} { // of base64's spare bits, and of the case of letters
			changed := f.clone()
			changed[proof.HistoryFile] = bytes.Clone(f[proof.HistoryFile])
			changed[proof.HistoryFile][at] ^= 1 << bit
			require.NotEmpty(t, check(t, changed, o).Integrity.Findings, "bit %d of byte %d, after %q", bit, at, f[proof.HistoryFile][max(0, at-10):at])
		}
	}
}

// What a power cut leaves in a history may be megabytes without a line's end. It is named like any other damage,
// with what comes after it.
func TestALineWithoutAnEndIsNamed(t *testing.T) {
	t.Parallel()
	l := newTestLog(t, "example.com/log", 0)
	for i := range 3 {
		l.add(t, record(i))
		l.sign(t)
	}
	f, o := l.write(t), Options{Policy: policy(t, 0, l.key.verifier)}
	lines := bytes.SplitAfter(f[proof.HistoryFile], []byte("\n"))
	for name, c := range map[string]struct {
		history [][]byte
		want    []string
	}{
		"in the middle": {
			[][]byte{lines[0], make([]byte, 3*maxLine), []byte("\n"), lines[1], lines[2]},
			[]string{"checkpoint: checkpoints: line 2: it has more than 1048576 bytes"},
		},
		"in the place of a line": {
			[][]byte{lines[0], make([]byte, 3*maxLine), []byte("\n"), lines[2]},
			[]string{"checkpoint: checkpoints: line 2: it has more than 1048576 bytes"},
		},
		"at the end":              {[][]byte{lines[0], lines[1], lines[2], make([]byte, 3*maxLine)}, []string{"checkpoint: checkpoints: line 4: it has more than 1048576 bytes"}},
		"at the end, and shorter": {[][]byte{lines[0], lines[1], lines[2], make([]byte, 300)}, nil},
	} {
		damaged := f.clone()
		damaged[proof.HistoryFile] = bytes.Join(c.history, nil)
		require.Equal(t, c.want, texts(check(t, damaged, o).Integrity), name)
	}
}

// A signed size costs nothing to make. It must cost neither memory nor time to refuse.
func TestAForgedSizeIsNamed(t *testing.T) {
	t.Parallel()
	l := newTestLog(t, "example.com/log", 0)
	l.add(t, records(0, 300)...)
	l.sign(t)
	for size, want := range map[int64]string{
		1<<63 - 1: "checkpoint: checkpoint: parse checkpoint: its size is 9223372036854775807, more than the 1152921504606846976 leaves readable by this version",
		1 << 60:   "unproven: entries 300 to 1152921504606846975: a checkpoint covers them, and this version verifies 4294967296 entries at most",
		1 << 40:   "unproven: entries 300 to 1099511627775: a checkpoint covers them, and this version verifies 4294967296 entries at most",
		1 << 30:   "missing: entries 300 to 1073741823: a checkpoint covers them, and most of their files are not there",
		1 << 32:   "missing: entries 300 to 4294967295: a checkpoint covers them, and most of their files are not there",
	} {
		f := l.write(t).clone()
		if size == 1<<32 {
			f["tile/4/000.p/1"] = make([]byte, tlog.HashSize) // a top is made in no time, too
		}
		signed, err := note.Sign(&note.Note{Text: proof.Checkpoint{Origin: "example.com/log", Size: size}.String()}, l.key.signers...)
		require.NoError(t, err)
		f[proof.CheckpointFile] = signed
		for _, o := range []Options{{}, {Policy: policy(t, 0, l.key.verifier)}} {
			r := check(t, f, o)
			found := texts(r.Integrity)
			assert.Contains(t, found, want)
			assert.EqualValues(t, 300, r.Entries, "what an older checkpoint covers is proven")
		}
	}
}

// Of a large trail, too, the loss of one file is the loss of that file: the top of its tree can be computed.
func TestALargeTreeWithoutItsTopIsVerified(t *testing.T) {
	t.Parallel()
	leaves := func(_ context.Context, path string) (io.ReadCloser, error) {
		if tile, err := proof.ParsePath(path); err != nil || tile.L > 0 {
			return nil, fs.ErrNotExist
		}
		return io.NopCloser(bytes.NewReader(make([]byte, width*tlog.HashSize))), nil
	}
	l := &logCheck{fetch: leaves, o: &Options{}, report: &Report{}}
	newest, err := l.plausible(t.Context(), signed{size: 2 * probedTree})
	require.NoError(t, err)
	require.EqualValues(t, 2*probedTree, newest.size)
	require.Empty(t, l.report.Integrity.Findings)
}

// A signed empty tree contradicts nothing, and proves nothing.
func TestAnEmptyTrailIsNotComplete(t *testing.T) {
	t.Parallel()
	l := newTestLog(t, "example.com/log", 0)
	l.sign(t)
	o := Options{Policy: policy(t, 0, l.key.verifier)}
	r := check(t, l.write(t), o)
	r.RefuseEmpty()
	assert.False(t, r.Integrity.Holds, "nothing was checked")
	assert.Empty(t, r.Integrity.Findings)
	assert.False(t, r.Completeness.Holds)
	assert.Equal(t, []string{"missing: no entry is under a signed root: the trail is empty, or was put back to its beginning"}, texts(r.Completeness))
	l.add(t, records(0, 1)...)
	l.sign(t)
	r = check(t, l.write(t), o)
	r.RefuseEmpty()
	sound(t, r)
}

// A full bundle may stand for a partial one: a relay has written it, and not signed it yet. What
// stands there beyond the newest checkpoint is named, except while the trail is in use.
func TestAFullBundleStandsForAPartialOne(t *testing.T) {
	t.Parallel()
	l := newTestLog(t, "example.com/log", 0)
	l.add(t, records(0, 60)...)
	l.sign(t)
	f := l.write(t)
	o := Options{Policy: policy(t, 0, l.key.verifier)}
	partial, full := proof.BundlePath(0, 60), proof.BundlePath(0, width)
	bundle := func(entries int) []byte {
		data := bytes.Clone(f[partial])
		for i := 60; i < entries; i++ {
			data = proof.AppendBundle(data, record(i))
		}
		return data
	}
	put := func(entries int) files {
		made := f.clone()
		delete(made, partial)
		made[full] = bundle(entries)
		return made
	}
	r := check(t, put(width), o)
	require.Empty(t, r.Integrity.Findings)
	assert.Equal(t, []string{"unsigned: entries 60 to 255: tile/entries/000.p/60: no checkpoint covers them, and they stand in the file all the same"}, texts(r.Completeness))
	assert.Equal(t, []string{"altered: tile/entries/000.p/60: it has 62 entries, not 256"}, texts(check(t, put(62), o).Integrity))
	o.Live = true
	sound(t, check(t, put(width), o))
}

// Both may stand there: readers take either, so both are held against the signed entries.
func TestAFullBundleBesideAPartialOne(t *testing.T) {
	t.Parallel()
	l := newTestLog(t, "example.com/log", 0)
	l.add(t, records(0, 60)...)
	l.sign(t)
	f := l.write(t)
	o := Options{Policy: policy(t, 0, l.key.verifier)}
	partial, full := proof.BundlePath(0, 60), proof.BundlePath(0, width)
	f[full] = bytes.Clone(f[partial])
	sound(t, check(t, f, o))
	for i := 60; i < width; i++ {
		f[full] = proof.AppendBundle(f[full], record(i))
	}
	r := check(t, f, o)
	require.Empty(t, r.Integrity.Findings)
	assert.Equal(t, []string{"unsigned: entries 60 to 255: tile/entries/000: no checkpoint covers them, and they stand in the file all the same"}, texts(r.Completeness))
	o.Live = true
	sound(t, check(t, f, o))
	f[full] = bytes.Replace(f[full], []byte(`"n":7}`), []byte(`"n":8}`), 1)
	assert.Equal(t, []string{"altered: entry 7: tile/entries/000: it is unlike the one in tile/entries/000.p/60"}, texts(check(t, f, o).Integrity))
	f[full] = f[full][:100]
	assert.Contains(t, strings.Join(texts(check(t, f, o).Integrity), "\n"), "altered: tile/entries/000: ")
}

// While a trail in use is read, it grows, and wider files take the place of the partial ones.
func TestAGrowingTrailIsReadAsItWas(t *testing.T) {
	t.Parallel()
	l := newTestLog(t, "example.com/log", 0)
	l.add(t, records(0, 300)...)
	l.sign(t)
	before := l.write(t).clone()
	l.add(t, records(300, 310)...)
	l.sign(t)
	grown := l.write(t).clone()
	for _, name := range []string{proof.CheckpointFile, proof.HistoryFile} {
		grown[name] = before[name] // read before it grew
	}
	for name := range before {
		if strings.HasSuffix(name, ".p/44") {
			delete(grown, name)
		}
	}
	o := Options{Policy: policy(t, 0, l.key.verifier), Live: true}
	sound(t, check(t, grown, o))
	altered := grown.clone()
	altered["tile/entries/001.p/54"] = flipped(altered["tile/entries/001.p/54"], 9)
	require.Equal(t, []string{"altered: entry 256: tile/entries/001.p/44: it does not have the hash that was signed"}, texts(check(t, altered, o).Integrity))
	o.Live = false
	require.Equal(t, []string{"unproven: entries 0 to 299: neither they nor their hashes give the signed root"}, texts(check(t, grown, o).Integrity))
}
