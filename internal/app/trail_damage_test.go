package app

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/mod/sumdb/note"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/internal/ingest/credentials"
	"github.com/auditrelay/auditrelay/internal/testbed/damage"
	"github.com/auditrelay/auditrelay/internal/testbed/readback"
	"github.com/auditrelay/auditrelay/internal/testbed/waiting"
	"github.com/auditrelay/auditrelay/internal/trail/audit"
	"github.com/auditrelay/auditrelay/internal/trail/proof"
	"github.com/auditrelay/auditrelay/internal/trail/tiles"
)

// damageable is the data directory of a stopped relay.
type damageable struct {
	dir    string
	issued *credentials.Issued
}

// copied returns the configuration of a relay on a copy.
func (d *damageable) copied(t *testing.T) *config.Config {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, os.CopyFS(dir, os.DirFS(d.dir)))
	return testConfig(dir)
}

// newDamageable has 30 entries in the trail, some checkpoints, and a generated credential.
func newDamageable(t *testing.T) *damageable {
	t.Helper()
	dir := t.TempDir()
	cfg := testConfig(dir)
	require.NoError(t, cfg.Validate())
	require.NoError(t, os.MkdirAll(cfg.DataDir, 0o700))
	log := slog.New(slog.DiscardHandler)
	files, err := OpenStore(t.Context(), cfg, StoreOptions{Logger: log})
	require.NoError(t, err)
	store, err := credentials.Open(t.Context(), files.Table(), credentials.Options{Environments: cfg.Environments})
	require.NoError(t, err)
	env := credentials.Environment{Project: "acme", Environment: "live"}
	var issued credentials.Issued
	for range 2 {
		issued, err = store.Prepare(t.Context(), env)
		require.NoError(t, err)
		require.NoError(t, store.Promote(t.Context(), env, issued.LastFour))
	}
	store.Close()
	for run := range 3 {
		trail, err := audit.Open(t.Context(), files, audit.Options{KeySource: audit.KeySource{Origin: cfg.Audit.Origin, KeyFile: cfg.Audit.KeyFile}})
		require.NoError(t, err)
		for i := range int64(10) {
			_, err := trail.AppendIf(t.Context(), audit.Entry{
				Type: "settings.changed", Project: "acme", Environment: "live", Subject: "rbac_policy", Time: time.Now(), After: inTurn(i),
			}, int64(run)*10+i-1)
			require.NoError(t, err)
		}
		require.NoError(t, trail.Close(t.Context()))
	}
	require.NoError(t, files.Close())
	r := start(t, cfg) // to forward the trail
	waiting.Until(t, func() bool { return len(auditEvents(r.path)) >= 30 })
	require.NoError(t, r.stop())
	return &damageable{dir, &issued}
}

// inTurn is one of two states, so that most entries have a reference to one of the first two.
func inTurn(i int64) json.RawMessage {
	return json.RawMessage(fmt.Sprintf(`{"text":"%s","which":%d}`, strings.Repeat("x", 300), i%2))
}

// auditEvents are the trail's entries, as the file sink has them.
func auditEvents(path string) []readback.Record {
	entries, _ := trailEvents(path)
	return entries
}

// trailEvents are the trail's entries and checkpoints, as the file sink has them.
func trailEvents(path string) (entries, checkpoints []readback.Record) {
	for rec, err := range readback.Records(path) {
		switch {
		case err != nil || !strings.Contains(rec.ID(), "@"):
		case fmt.Sprint(rec.Attributes["type"]) == audit.TypeCheckpoint:
			checkpoints = append(checkpoints, rec)
		default:
			entries = append(entries, rec)
		}
	}
	return entries, checkpoints
}

// namings lists the damage named by the audit events, a line each.
func namings(t *testing.T, path string) (all []string) {
	t.Helper()
	seen := map[string]bool{}
	for _, rec := range auditEvents(path) {
		if seen[rec.ID()] {
			continue // delivered twice
		}
		seen[rec.ID()] = true
		switch kind := fmt.Sprint(rec.Attributes["type"]); kind {
		case audit.TypeDamaged, audit.TypeRestored, audit.TypeGeneration:
			var e struct {
				Detail struct {
					Reason   string
					Problems []proof.Finding
				}
			}
			require.NoError(t, json.Unmarshal(rec.Body, &e))
			if e.Detail.Reason != "" {
				all = append(all, rec.ID()+" "+e.Detail.Reason)
			}
			for _, p := range e.Detail.Problems {
				all = append(all, fmt.Sprint(p.Kind, p.From, p.To))
			}
		case "journal.quarantined":
			all = append(all, fmt.Sprint(rec.Attributes["subject"]))
		}
	}
	return all
}

func damageFile(t *testing.T, path, how string, rng *rand.Rand) {
	t.Helper()
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	if how == "deleted" {
		require.NoError(t, os.Remove(path))
		return
	}
	if len(data) == 0 {
		return
	}
	if how == "cut" {
		data = data[:rng.IntN(len(data))]
	} else {
		data[rng.IntN(len(data))] ^= 1 << rng.IntN(8)
	}
	require.NoError(t, os.WriteFile(path, data, 0o600))
}

// meansTheSame reports whether the only difference of two notes is in bits that base64 leaves
// unused.
func meansTheSame(was, is []byte) bool {
	words := func(note []byte) []string {
		return strings.FieldsFunc(string(note), func(r rune) bool { return r == ' ' || r == '\n' })
	}
	return slices.EqualFunc(words(was), words(is), func(a, b string) bool {
		x, errX := base64.StdEncoding.DecodeString(a)
		y, errY := base64.StdEncoding.DecodeString(b)
		return a == b || errX == nil && errY == nil && bytes.Equal(x, y)
	})
}

// hasOneOfAnother reports whether one of several signatures of a note names another key than before, and
// all else is the same. It is passed over, and nothing is lost with it.
func hasOneOfAnother(was, is []byte) bool {
	read := func(data []byte) *note.Note {
		var unverified *note.UnverifiedNoteError
		_, err := note.Open(data, note.VerifierList())
		if !errors.As(err, &unverified) {
			return &note.Note{}
		}
		return unverified.Note
	}
	x, y := read(was), read(is)
	if x.Text != y.Text || len(x.UnverifiedSigs) != len(y.UnverifiedSigs) || len(x.UnverifiedSigs) < 2 {
		return false
	}
	last := len(x.UnverifiedSigs) - 1
	a, b := x.UnverifiedSigs[last], y.UnverifiedSigs[last]
	return slices.Equal(x.UnverifiedSigs[:last], y.UnverifiedSigs[:last]) && (a.Name != b.Name || a.Hash != b.Hash)
}

// isSignedNote reports whether a cut left a whole note with a signature: nothing is lost
// with a further signature of the same key.
func isSignedNote(t *testing.T, path string) bool {
	t.Helper()
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false
	}
	require.NoError(t, err)
	_, signatures, _ := strings.Cut(string(text), "\n\n")
	return strings.Count(signatures, "\n") == 1 && strings.HasSuffix(signatures, "\n")
}

// controlFiles are the files of the trail and the credentials, below the data directory.
func controlFiles(t *testing.T, dir string) (files []string) {
	t.Helper()
	require.NoError(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		rel, _ := filepath.Rel(dir, path)
		about := strings.Contains(rel, audit.EntriesLog) || strings.Contains(rel, audit.CheckpointsLog) ||
			strings.HasPrefix(rel, "audit.key") || strings.HasPrefix(rel, filepath.Join(StoreDir, "values.")) || rel == filepath.Join(StoreDir, "lazy")
		if err == nil && about && d.Type().IsRegular() {
			files = append(files, rel)
		}
		return err
	}))
	require.GreaterOrEqual(t, len(files), 8)
	return files
}

// Whatever is damaged of the trail, its key and the credentials: the relay starts,
// takes pushes with its generated credential and delivers them, and names the
// damage. A further start does so too, and names nothing twice.
func TestADamagedTrailStopsNothing(t *testing.T) {
	t.Parallel()
	made := newDamageable(t)
	for n, name := range controlFiles(t, filepath.Join(made.dir, "data")) {
		for i, how := range []string{"flipped", "cut", "deleted"} {
			if testing.Short() && i != n%3 {
				continue // each file is damaged in one way, and in all three by make test
			}
			t.Run(name+"/"+how, func(t *testing.T) {
				t.Parallel()
				cfg := made.copied(t)
				seed := uint64(time.Now().UnixNano())
				t.Logf("seed %d", seed)
				path := filepath.Join(cfg.DataDir, name)
				was, err := os.ReadFile(path)
				require.NoError(t, err)
				damageFile(t, path, how, rand.New(rand.NewPCG(seed, uint64(i))))
				is, _ := os.ReadFile(path) // unless it was deleted
				mustName := strings.HasSuffix(name, "audit.key.checkpoint") && (how != "cut" || !isSignedNote(t, path)) && !meansTheSame(was, is) && !hasOneOfAnother(was, is) ||
					how != "flipped" && strings.HasSuffix(name, "audit.key") && !bytes.Equal(bytes.TrimSpace(was), is) // its last newline means nothing
				assertRunsAndNames(t, cfg, made.issued, mustName)
			})
		}
	}
}

// A lost entry is read from the trail's files, and a lost checkpoint is not needed for reading. Both
// are named, since each log is read back.
func TestALostRecordOfTheTrailIsNamed(t *testing.T) {
	t.Parallel()
	made := newDamageable(t)
	for name, c := range map[string]struct {
		log      string
		files    bool
		mustName bool
	}{
		"an entry":           {audit.EntriesLog, false, true},
		"an entry in a file": {audit.EntriesLog, true, true},
		"a checkpoint":       {audit.CheckpointsLog, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := made.copied(t)
			_, err := damage.Of(cfg.DataDir).FlipRecord(c.log, 2)
			require.NoError(t, err)
			if !c.files {
				require.NoError(t, os.RemoveAll(filepath.Join(cfg.DataDir, tiles.Dir)))
			}
			assertRunsAndNames(t, cfg, made.issued, c.mustName)
		})
	}
}

// The logs, the key and the checkpoint next to it are gone in every combination.
func TestALostTrailStopsNothing(t *testing.T) {
	t.Parallel()
	parts := []string{"store/" + audit.EntriesLog, "store/" + audit.CheckpointsLog, "audit.key", "audit.key.checkpoint", ForwardedFile}
	made := newDamageable(t)
	for mask := 1; mask < 1<<len(parts); mask++ {
		if testing.Short() && mask%5 != 0 {
			continue // make test plays all
		}
		t.Run(fmt.Sprintf("%05b", mask), func(t *testing.T) {
			t.Parallel()
			cfg := made.copied(t)
			for i, part := range parts {
				paths, err := filepath.Glob(filepath.Join(cfg.DataDir, part))
				require.NoError(t, err)
				require.NotEmpty(t, paths, part)
				for _, path := range paths {
					if mask&(1<<i) != 0 {
						require.NoError(t, os.RemoveAll(path))
					}
				}
			}
			// Where all of it is gone it is a new relay's. The note of what was forwarded is
			// no loss alone. Entries that the trail's files have are not lost either.
			trailGone, keyGone, pinGone := mask&1 != 0, mask&4 != 0, mask&8 != 0
			if trailGone {
				require.NoError(t, os.RemoveAll(filepath.Join(cfg.DataDir, tiles.Dir)))
			}
			evidence := mask&1 == 0 || mask&2 == 0 || mask&8 == 0 || mask&16 == 0 || !keyGone
			assertRunsAndNames(t, cfg, made.issued, evidence && (trailGone || keyGone || pinGone))
		})
	}
}

// assertRunsAndNames starts the relay twice.
func assertRunsAndNames(t *testing.T, cfg *config.Config, issued *credentials.Issued, mustName bool) {
	t.Helper()
	before := len(namings(t, cfg.Sinks[0].File.Path))
	for round := range 2 {
		r := start(t, cfg)
		id := fmt.Sprintf("round-%d", round)
		body := fmt.Appendf(nil, `{"streams":[{"stream":{},"values":[["%d","{\"event_id\":\"%s\"}"]]}]}`, time.Now().UnixNano(), id)
		req, err := http.NewRequest(http.MethodPost, "http://"+r.Ingest+"/loki/api/v1/push", bytes.NewReader(body))
		require.NoError(t, err)
		req.SetBasicAuth(issued.Username, issued.Password.Reveal())
		req.Header.Set("Content-Type", "application/json")
		code, text := r.do(req)
		assert.Equal(t, http.StatusNoContent, code, text)
		r.arrived(id)
		code, text = r.get("/readyz")
		assert.Equal(t, http.StatusOK, code, text)
		assert.Equal(t, "1", r.metric("auditrelay_audit_usable"), text)
		if mustName {
			waiting.Until(t, func() bool { return len(namings(t, r.path)) > before }, "nothing names the damage: %s", text)
		}
		require.NoError(t, r.stop())
	}
	all := namings(t, cfg.Sinks[0].File.Path)
	t.Logf("named: %v", all)
	slices.Sort(all)
	assert.Equal(t, slices.Compact(slices.Clone(all)), all, "something is named twice")
}
