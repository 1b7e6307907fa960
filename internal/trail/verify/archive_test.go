package verify

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/auditrelay/auditrelay/internal/jsontext"
	"github.com/auditrelay/auditrelay/internal/trail/eventproof"
	"github.com/auditrelay/auditrelay/internal/trail/proof"
)

// archivedLogOf is a log whose first 1024 entries were archived, except for bundle 2, with an archive
// of them on the disk.
func archivedLogOf(t *testing.T) (l *testLog, live files, archive string) {
	t.Helper()
	const name = "example.com/log"
	l = newTestLog(t, name, 0)
	span := eventproof.Span{First: 1, Last: 5}
	first := entryOf(t, eventproof.Type, span)
	canonical := entryDetail(t, span)
	l.add(t, first, entryOf(t, settingsChecked, checkedAt(0, 24*time.Hour, 24)))
	l.add(t, records(2, 1000)...)
	l.add(t, entryOf(t, settingsChecked, checkedAt(24*time.Hour, 48*time.Hour, 24)))
	l.add(t, []byte(strings.Repeat("long", 20_000)))
	l.add(t, records(1002, 1400)...)
	l.add(t, entryOf(t, eventproof.Type, eventproof.Span{First: 6, Last: 9, Previous: &eventproof.Previous{Index: 0, SHA256: jsontext.Hash(canonical)}}))
	l.add(t, entryOf(t, settingsChecked, checkedAt(72*time.Hour, 96*time.Hour, 24))) // after a gap: the looks before are archived
	l.add(t, entryOf(t, proof.TypeArchived, proof.Archived{Origin: name, From: 0, To: 1023, Size: 1024, Where: "/mnt/old"}))
	l.sign(t)
	whole := l.write(t)
	archive = t.TempDir()
	for path, data := range whole {
		to := filepath.Join(archive, "0", filepath.FromSlash(path))
		require.NoError(t, os.MkdirAll(filepath.Dir(to), 0o700))
		require.NoError(t, os.WriteFile(to, data, 0o600))
	}
	live = whole.clone()
	for _, n := range []int64{0, 1, 3} {
		delete(live, proof.BundlePath(n, width))
	}
	maps.DeleteFunc(live, func(path string, _ []byte) bool { return strings.HasPrefix(path, "records/") })
	return l, live, archive
}

func entryDetail(t *testing.T, detail any) []byte {
	t.Helper()
	raw, err := json.Marshal(detail)
	require.NoError(t, err)
	text, err := jsontext.Canonical(raw)
	require.NoError(t, err)
	return text
}

func TestArchivedEntriesAreCheckedByTheirHashes(t *testing.T) {
	t.Parallel()
	l, live, archive := archivedLogOf(t)
	o := Options{Policy: policy(t, 0, l.key.verifier)}
	r := check(t, live, o)
	sound(t, r)
	require.Equal(t, []Archived{
		{Log: "example.com/log", From: 0, To: 511, Where: "/mnt/old"},
		{Log: "example.com/log", From: 768, To: 1023, Where: "/mnt/old"},
	}, r.Archived)

	// The archive is a whole log: it tells of what the trail lacks.
	r = archived(t, archive, o)
	require.Empty(t, r.Archived)
	require.Empty(t, r.Integrity.Findings)
	require.Equal(t, []string{"looks: entry 1401: acme/live: nobody looked between 2026-03-03T00:00:00Z and 2026-03-04T00:00:00Z"}, texts(r.Completeness))

	// Both are one history, as the archive's checkpoint shows.
	note, err := os.ReadFile(filepath.Join(archive, "0", proof.CheckpointFile))
	require.NoError(t, err)
	o.Known = [][]byte{note}
	sound(t, check(t, live, o))
}

// archived verifies an archive.
func archived(t *testing.T, dir string, o Options) Report {
	t.Helper()
	fetch, dirs, err := Folder(dir)
	require.NoError(t, err)
	o.Whole = true
	r, err := Trail(t.Context(), fetch, dirs, o)
	require.NoError(t, err)
	return r
}

// A bundle lost by the trail is no archived one, and a lost hash of an archived entry is found.
func TestDamageToATrailWithAnArchive(t *testing.T) {
	t.Parallel()
	l, live, _ := archivedLogOf(t)
	o := Options{Policy: policy(t, 0, l.key.verifier)}
	lost := live.clone()
	delete(lost, "tile/entries/004")
	require.Equal(t, []string{"missing: entries 1024 to 1279: tile/entries/004: it is not there"}, texts(check(t, lost, o).Integrity))
	forged := live.clone()
	forged["tile/0/000"] = flipped(forged["tile/0/000"], 7)
	require.Equal(t, []string{"unproven: entries 0 to 255: tile/entries/000: neither they nor their hashes give the signed root"}, texts(check(t, forged, o).Integrity))
}

// Without the signed entry, missing bundles are missing.
func TestABundleMissingWithoutAnEntryIsMissing(t *testing.T) {
	t.Parallel()
	l := newTestLog(t, "example.com/log", 0)
	l.add(t, records(0, 600)...)
	l.sign(t)
	f := l.write(t)
	delete(f, "tile/entries/000")
	r := check(t, f, Options{Policy: policy(t, 0, l.key.verifier)})
	require.Equal(t, []string{"missing: entries 0 to 255: tile/entries/000: it is not there"}, texts(r.Integrity))
	require.Empty(t, r.Archived)
}

func TestArchivedEntriesAreProven(t *testing.T) {
	t.Parallel()
	l, live, archive := archivedLogOf(t)
	own := *policy(t, 0, l.key.verifier)
	for whole, fetch := range []Fetch{live.fetch, Dir(filepath.Join(archive, "0"))} {
		p, err := NewProver(t.Context(), fetch, []string{""})
		require.NoError(t, err)
		for _, index := range []int64{0, 300, 600, 1001, 1402} {
			made, err := p.Prove(t.Context(), index)
			require.NoError(t, err)
			_, _, err = made.Proof.Verify(made.Leaf, own)
			require.NoError(t, err)
			archived := index != 600 && index != 1402 && whole == 0
			require.Equal(t, archived, made.Record == nil, index)
			if !archived {
				require.Equal(t, made.Leaf, proof.LeafHash(made.Record))
			}
		}
	}
	forged := live.clone()
	forged["tile/0/000"] = flipped(forged["tile/0/000"], 7)
	p, err := NewProver(t.Context(), forged.fetch, []string{""})
	require.NoError(t, err)
	_, err = p.Prove(t.Context(), 0)
	require.Error(t, err)
}

// Whatever byte of a trail with an archive is flipped, and whatever file is lost, it is found.
func TestTamperingWithATrailThatHasAnArchive(t *testing.T) {
	t.Parallel()
	l, live, _ := archivedLogOf(t)
	o := Options{Policy: policy(t, 0, l.key.verifier)}
	sound(t, check(t, live, o))
	kept := slices.DeleteFunc(slices.Sorted(maps.Keys(live)), func(path string) bool {
		return path == "tile/entries/002" || path == proof.CheckpointFile || path == proof.HistoryFile // other tests have those; the archive has bundle 002 too
	})
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 11))
		files, path := live.clone(), kept[rng.IntN(len(kept))]
		if files[path] = flipped(files[path], rng.IntN(len(files[path]))); seed%3 == 0 {
			delete(files, path)
		}
		require.NotEmpty(t, check(t, files, o).Integrity.Findings, "seed %d: %s", seed, path)
	}
}

// An archive is verified whole: whichever of its files is altered, cut off, lengthened or deleted,
// it is found.
func TestEveryFileOfAnArchiveIsVerified(t *testing.T) {
	t.Parallel()
	l, _, archive := archivedLogOf(t)
	o := Options{Policy: policy(t, 0, l.key.verifier)}
	changes := map[string]func([]byte) []byte{
		"altered":    func(data []byte) []byte { return flipped(data, 3) },
		"cut off":    func(data []byte) []byte { return data[:len(data)-1] },
		"lengthened": func(data []byte) []byte { return append(slices.Clone(data), "x\n"...) },
		"deleted":    nil,
	}
	files := slices.Sorted(maps.Keys(l.files))
	require.Greater(t, len(files), 15)
	for _, path := range files {
		for name, change := range changes {
			file := filepath.Join(archive, "0", filepath.FromSlash(path))
			data, err := os.ReadFile(file)
			require.NoError(t, err)
			require.NoError(t, os.Remove(file))
			if change != nil {
				require.NoError(t, os.WriteFile(file, change(data), 0o600))
			}
			require.NotEmpty(t, archived(t, archive, o).Integrity.Findings, "%s: %s", path, name)
			require.NoError(t, os.WriteFile(file, data, 0o600))
		}
	}
}

// An older checkpoint of its own history, put in the place of an archive's newest, is found.
func TestAnOlderCheckpointOfAnArchiveIsFound(t *testing.T) {
	t.Parallel()
	l, _, archive := archivedLogOf(t)
	older := l.checkpoint(t, 1000)
	var history []byte
	for seq, note := range [][]byte{older, l.newest} {
		history = append(history, spellLine(t, proof.Line{Seq: uint64(seq + 1), Key: l.key.verifier, Checkpoint: string(note)})...)
	}
	put := func(name string, data []byte) {
		require.NoError(t, os.WriteFile(filepath.Join(archive, "0", name), data, 0o600))
	}
	o := Options{Policy: policy(t, 0, l.key.verifier)}
	put(proof.HistoryFile, history)
	require.Empty(t, texts(archived(t, archive, o).Integrity))
	put(proof.CheckpointFile, older)
	require.Contains(t, strings.Join(texts(archived(t, archive, o).Integrity), "\n"), "an older one was put in its place")
	put(proof.CheckpointFile, l.newest)

	file := filepath.Join("tile", "entries", "000")
	data, err := os.ReadFile(filepath.Join(archive, "0", file))
	require.NoError(t, err)
	put(file, proof.AppendBundle(data, record(1)))
	require.Len(t, texts(archived(t, archive, o).Integrity), 1, "nothing is named twice")
}

// longArchived is a log of full bundles: as many as archived have one leaf again and again, and are not there,
// and three more have the entries of some records.
type longArchived struct {
	archived int64
	key      key
	files    files       // of the last bundles, and the notes
	tile     []byte      // of an archived bundle
	chunks   []tlog.Hash // the roots of the bundles
	heap     int64       // the most that was in use while the files were read
	reads    int
}

func newLongArchived(t *testing.T, archived int64) *longArchived {
	t.Helper()
	const name = "example.com/log"
	end := archived * width
	last := newTestLog(t, name, 0)
	last.add(t, records(0, 3*width-1)...)
	last.add(t, entryOf(t, proof.TypeArchived, proof.Archived{Origin: name, From: 0, To: end - 1, Size: end, Where: "/mnt/old"}))
	l := &longArchived{archived: archived, key: last.key, files: files{}}
	leaf := proof.LeafHash([]byte("archived"))
	same := slices.Repeat([]tlog.Hash{leaf}, width)
	l.tile, l.chunks = proof.JoinHashes(same), slices.Repeat([]tlog.Hash{proof.Edge{}.With(same...).Root()}, int(archived))
	for n := range int64(3) {
		var hashes []tlog.Hash
		var bundle []byte
		for _, leaf := range last.leaves[n*width : (n+1)*width] {
			hashes, bundle = append(hashes, tlog.RecordHash(leaf)), proof.AppendBundle(bundle, leaf)
		}
		l.files[proof.BundlePath(archived+n, width)] = bundle
		l.files[proof.TilePath(tlog.Tile{N: archived + n, W: width})] = proof.JoinHashes(hashes)
		l.chunks = append(l.chunks, proof.Edge{}.With(hashes...).Root())
	}
	levels := l.chunks
	for level := 1; len(levels) > 0; level++ {
		var above []tlog.Hash
		for n := 0; n*width < len(levels); n++ {
			part := levels[n*width : min(len(levels), (n+1)*width)]
			l.files[proof.TilePath(tlog.Tile{L: level, N: int64(n), W: len(part)})] = proof.JoinHashes(part)
			if len(part) == width {
				above = append(above, proof.Edge{}.With(part...).Root())
			}
		}
		levels = above
	}
	c := proof.Checkpoint{Origin: name, Size: int64(len(l.chunks)) * width, Root: proof.Edge{}.With(l.chunks...).Root()}
	signed, err := note.Sign(&note.Note{Text: c.String()}, last.key.signers...)
	require.NoError(t, err)
	l.files[proof.CheckpointFile] = signed
	l.files[proof.HistoryFile] = spellLine(t, proof.Line{Seq: 1, Key: last.key.verifier, Checkpoint: string(signed)})
	return l
}

func (l *longArchived) fetch(ctx context.Context, path string) (io.ReadCloser, error) {
	if t, err := proof.ParsePath(path); err == nil && t.L == 0 && t.N < l.archived {
		return io.NopCloser(bytes.NewReader(l.tile)), nil
	}
	if l.reads++; l.reads%2000 == 0 {
		l.heap = max(l.heap, heap())
	}
	return l.files.fetch(ctx, path)
}

// However many bundles were moved to an archive, damage to the others is found, and it takes no memory for each.
func TestManyArchivedEntriesHideNoDamage(t *testing.T) {
	l := newLongArchived(t, mostFindings+1)
	o := Options{Policy: policy(t, 0, l.key.verifier), Workers: 1}
	verified := func() Report {
		r, err := Trail(t.Context(), l.fetch, []string{""}, o)
		require.NoError(t, err)
		require.Equal(t, []Archived{{Log: "example.com/log", From: 0, To: l.archived*width - 1, Where: "/mnt/old"}}, r.Archived)
		return r
	}
	before := heap()
	sound(t, verified())
	t.Logf("%d bytes at most", l.heap-before)
	assert.Less(t, l.heap-before, int64(64<<20))

	damaged := proof.BundlePath(l.archived+1, width)
	delete(l.files, damaged)
	r := verified()
	require.False(t, r.Integrity.Holds)
	require.Equal(t, []string{fmt.Sprintf("missing: entries %d to %d: %s: it is not there", (l.archived+1)*width, (l.archived+2)*width-1, damaged)}, texts(r.Integrity))
}
