package verify

import (
	"encoding/json"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/internal/json/jsondiff"
	"github.com/auditrelay/auditrelay/internal/trail/eventproof"
	"github.com/auditrelay/auditrelay/internal/trail/proof"
	"github.com/auditrelay/auditrelay/internal/trail/truth"
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
	l.add(t, entryOf(t, eventproof.Type, eventproof.Span{First: 6, Last: 9, Previous: &eventproof.Previous{Index: 0, SHA256: jsondiff.Hash(canonical)}}))
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
	text, err := jsondiff.Canonical(raw)
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

	o.Archives = []string{archive}
	r = check(t, live, o)
	require.Empty(t, r.Archived)
	require.Empty(t, r.Integrity.Findings)
	require.Equal(t, []string{"looks: entry 1401: acme/live: nobody looked between 2026-03-03T00:00:00Z and 2026-03-04T00:00:00Z"}, texts(r.Completeness))
}

// Damage to an archive is no damage to the trail. A bundle lost by the trail is no archived one.
func TestDamageToAnArchiveIsToldFromDamageToTheTrail(t *testing.T) {
	t.Parallel()
	l, live, archive := archivedLogOf(t)
	o := Options{Policy: policy(t, 0, l.key.verifier)}
	lost := live.clone()
	delete(lost, "tile/entries/004")
	require.Equal(t, []string{"missing: entries 1024 to 1279: tile/entries/004: it is not there"}, texts(check(t, lost, o).Integrity))
	o.Archives = []string{archive}
	require.Equal(t, []string{"missing: entries 1024 to 1279: tile/entries/004: it is not there; an archive has it, though the trail does not say that it was moved"}, texts(check(t, lost, o).Integrity))
	o.Archives = nil

	forged := live.clone()
	forged["tile/0/000"] = flipped(forged["tile/0/000"], 7)
	require.Equal(t, []string{"unproven: entries 0 to 255: tile/entries/000: neither they nor their hashes give the signed root"}, texts(check(t, forged, o).Integrity))

	o.Archives = []string{archive}
	require.Equal(t, []string{"tile: tile/0/000: it does not have the hashes that were signed"}, texts(check(t, forged, o).Integrity))

	bundle := filepath.Join(archive, "0/tile/entries/001")
	good, err := os.ReadFile(bundle)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(bundle, flipped(good, 9), 0o600))
	r := check(t, live, o)
	require.Equal(t, []string{"archive: entry 256: " + bundle + ": altered in the archive; the trail itself is not concerned: it does not have the hash that was signed"}, texts(r.Integrity))
	require.Empty(t, r.Archived)

	require.NoError(t, os.Remove(bundle))
	r = check(t, live, o)
	require.Equal(t, []string{"archive: entries 256 to 511: their bundles were moved to /mnt/old, and the given archives do not have them; their hashes are the signed ones"}, texts(r.Integrity))
	require.Empty(t, r.Archived)

	for _, dir := range []string{t.TempDir(), filepath.Join(archive, "gone")} {
		_, err = Trail(t.Context(), live.fetch, []string{""}, Options{Policy: o.Policy, Archives: []string{dir}})
		require.ErrorContains(t, err, "no log with a checkpoint")
	}
	other := newTestLog(t, "example.com/other", 0)
	other.add(t, records(0, 3)...)
	other.sign(t)
	_, err = Trail(t.Context(), other.write(t).fetch, []string{""}, Options{Archives: []string{archive}})
	require.ErrorContains(t, err, "the archive of another trail")
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
	for _, dirs := range [][]string{nil, {archive}} {
		p, err := NewProver(t.Context(), live.fetch, []string{""}, dirs)
		require.NoError(t, err)
		for _, index := range []int64{0, 300, 600, 1001, 1402} {
			made, err := p.Prove(t.Context(), index)
			require.NoError(t, err)
			_, _, err = made.Proof.Verify(made.Leaf, own)
			require.NoError(t, err)
			archived := index != 600 && index != 1402 && dirs == nil
			require.Equal(t, archived, made.Record == nil, index)
			if !archived {
				require.Equal(t, made.Leaf, proof.LeafHash(made.Record))
			}
		}
	}
	forged := live.clone()
	forged["tile/0/000"] = flipped(forged["tile/0/000"], 7)
	p, err := NewProver(t.Context(), forged.fetch, []string{""}, nil)
	require.NoError(t, err)
	_, err = p.Prove(t.Context(), 0)
	require.Error(t, err)
}

// Whatever byte is flipped, and whatever file is lost, it is found, and told whether the trail or the
// archive is damaged.
func TestTamperingWithATrailAndItsArchive(t *testing.T) {
	t.Parallel()
	l, live, archive := archivedLogOf(t)
	o := Options{Policy: policy(t, 0, l.key.verifier), Archives: []string{archive}}
	sound := check(t, live, o)
	moved := []string{} // what only the archive has
	for path := range l.files {
		if _, there := live[path]; !there {
			moved = append(moved, path)
		}
	}
	slices.Sort(moved)
	kept := slices.DeleteFunc(slices.Sorted(maps.Keys(live)), func(path string) bool {
		return path == "tile/entries/002" || path == proof.CheckpointFile || path == proof.HistoryFile // other tests have those; the archive has bundle 002 too
	})
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 11))
		inArchive, remove := seed%2 == 0, seed%6 < 2
		files, path := live.clone(), kept[rng.IntN(len(kept))]
		var back []byte
		if inArchive {
			path = moved[rng.IntN(len(moved))]
			back = spoilFile(t, filepath.Join(archive, "0", path), rng, remove)
		} else if files[path] = flipped(files[path], rng.IntN(len(files[path]))); remove {
			delete(files, path)
		}
		r := check(t, files, o)
		found := slices.Concat(r.Integrity.Findings, r.Completeness.Findings[:len(r.Completeness.Findings)-min(len(r.Completeness.Findings), len(sound.Completeness.Findings))])
		isArchive := func(f truth.Finding) bool { return f.Kind == truth.Archive }
		require.NotEmpty(t, found, "seed %d: %s", seed, path)
		if inArchive {
			require.True(t, slices.ContainsFunc(slices.Concat(r.Integrity.Findings, r.Completeness.Findings), isArchive), "seed %d: %s: %v", seed, path, r)
			require.False(t, slices.ContainsFunc(r.Integrity.Findings, func(f truth.Finding) bool { return !isArchive(f) }), "seed %d: %s: %v", seed, path, texts(r.Integrity))
			require.NoError(t, os.WriteFile(filepath.Join(archive, "0", path), back, 0o600))
		} else {
			require.False(t, slices.ContainsFunc(slices.Concat(r.Integrity.Findings, r.Completeness.Findings), isArchive), "seed %d: %s: %v", seed, path, texts(r.Integrity))
		}
	}
}

// spoilFile flips a byte of a file, or removes it, and gives what it was.
func spoilFile(t *testing.T, path string, rng *rand.Rand, remove bool) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	if remove {
		require.NoError(t, os.Remove(path))
	} else {
		require.NoError(t, os.WriteFile(path, flipped(data, rng.IntN(len(data))), 0o600))
	}
	return data
}

// Of two archives, the one not given is not damaged.
func TestAnArchiveThatIsNotGivenIsNotAtHand(t *testing.T) {
	t.Parallel()
	a, b := proof.Archived{Where: "/mnt/a"}, proof.Archived{Where: "/mnt/b"}
	c := trailCheck{complete: &completeness{archived: []proof.Archived{a, b, a}}}
	for _, of := range []struct {
		given         []string
		hasA, hasBoth bool
	}{{nil, false, false}, {[]string{"/mnt/a"}, true, false}, {[]string{"/elsewhere"}, false, false}, {[]string{"/elsewhere/a", "/elsewhere/b"}, true, true}} {
		c.o = &Options{Archives: of.given}
		require.Equal(t, of.hasA, c.isAtHand(a), of.given)
		require.Equal(t, of.hasBoth, c.isAtHand(b), of.given)
	}
}

// An archive is verified whole: whichever of its files is altered, cut off, lengthened or deleted,
// it is found, and told from damage to the trail.
func TestEveryFileOfAnArchiveIsVerified(t *testing.T) {
	t.Parallel()
	l, live, archive := archivedLogOf(t)
	o := Options{Policy: policy(t, 0, l.key.verifier), Archives: []string{archive}}
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
			r, err := Trail(t.Context(), live.fetch, []string{""}, o)
			require.True(t, err != nil || len(r.Integrity.Findings) > 0, "%s: %s", path, name)
			if err != nil { // it looks like another trail's
				require.Equal(t, proof.CheckpointFile, path)
			}
			for _, f := range r.Integrity.Findings {
				require.Equal(t, truth.Archive, f.Kind, "%s: %s: %s", path, name, f)
			}
			require.NoError(t, os.WriteFile(file, data, 0o600))
		}
	}
}

// An older checkpoint of its own history, put in the place of an archive's newest, is found.
func TestAnOlderCheckpointOfAnArchiveIsFound(t *testing.T) {
	t.Parallel()
	l, live, archive := archivedLogOf(t)
	older := l.checkpoint(t, 1000)
	var history []byte
	for seq, note := range [][]byte{older, l.newest} {
		history = append(history, spellLine(t, proof.Line{Seq: uint64(seq + 1), Key: l.key.verifier, Checkpoint: string(note)})...)
	}
	put := func(name string, data []byte) {
		require.NoError(t, os.WriteFile(filepath.Join(archive, "0", name), data, 0o600))
	}
	o := Options{Policy: policy(t, 0, l.key.verifier), Archives: []string{archive}}
	put(proof.HistoryFile, history)
	require.Empty(t, texts(check(t, live, o).Integrity))
	put(proof.CheckpointFile, older)
	require.Contains(t, strings.Join(texts(check(t, live, o).Integrity), "\n"), "an older one was put in its place")
	put(proof.CheckpointFile, l.newest)

	file := filepath.Join("tile", "entries", "000")
	data, err := os.ReadFile(filepath.Join(archive, "0", file))
	require.NoError(t, err)
	put(file, proof.AppendBundle(data, record(1)))
	require.Len(t, texts(check(t, live, o).Integrity), 1, "nothing is named twice")
}
