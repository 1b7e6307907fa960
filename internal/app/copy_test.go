package app

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/internal/control/console"
	"github.com/auditrelay/auditrelay/internal/testbed/readback"
	"github.com/auditrelay/auditrelay/internal/testbed/waiting"
	"github.com/auditrelay/auditrelay/internal/trail/audit"
	"github.com/auditrelay/auditrelay/internal/trail/tiles"
	"github.com/auditrelay/auditrelay/internal/trail/timeline"
)

// A sink's copy suffices to compute the root that was signed, with the public key alone:
// each event has its leaf and the root up to it, and the checkpoints are there too, each
// after its entries, and once after a restart.
func TestASinksCopyProvesTheTrail(t *testing.T) {
	t.Parallel()
	cfg := newDamageable(t).copied(t)
	r := start(t, cfg)
	var entries, checkpoints []readback.Record
	waiting.Until(t, func() bool {
		entries, checkpoints = trailEvents(r.path)
		signed := fmt.Sprintf("@checkpoint-%d-", len(entries))
		return len(entries) >= 30 && len(checkpoints) > 0 && strings.Contains(checkpoints[len(checkpoints)-1].ID(), signed)
	})
	var status struct {
		Trail struct {
			PublicKey string `json:"public_key"`
		}
	}
	_, text := r.get("/status")
	require.NoError(t, json.Unmarshal([]byte(text), &status))
	require.NoError(t, r.stop())
	var stored []tlog.Hash
	reader := tlog.HashReaderFunc(func(indexes []int64) (hashes []tlog.Hash, err error) {
		for _, i := range indexes {
			hashes = append(hashes, stored[i])
		}
		return hashes, nil
	})
	size := int64(0)
	roots := map[int64]tlog.Hash{}
	for _, rec := range entries {
		place, leaf, err := audit.ReadEvent(rec.Body)
		require.NoError(t, err)
		if place.Index < size {
			continue // it came again
		}
		require.Equal(t, size, place.Index)
		if kind := rec.Attributes["type"]; kind != typeStarted && kind != typeStopped {
			require.Contains(t, string(rec.Body), `"after":`+string(inTurn(size)))
		}
		hashes, err := tlog.StoredHashes(size, leaf, reader)
		require.NoError(t, err)
		stored = append(stored, hashes...)
		size++
		roots[size], err = tlog.TreeHash(size, reader)
		require.NoError(t, err)
		require.Equal(t, roots[size], *place.Root)
	}
	verifier, err := note.NewVerifier(status.Trail.PublicKey)
	require.NoError(t, err)
	ids := map[string]bool{}
	for _, rec := range checkpoints {
		require.False(t, ids[rec.ID()], "%s twice", rec.ID())
		ids[rec.ID()] = true
		var body struct {
			Checkpoint string
			Size       int64
			Root       tlog.Hash
		}
		require.NoError(t, json.Unmarshal(rec.Body, &body))
		n, err := note.Open([]byte(body.Checkpoint), note.VerifierList(verifier))
		require.NoError(t, err)
		require.Contains(t, n.Text, "\n"+roots[body.Size].String()+"\n")
		require.Equal(t, roots[body.Size], body.Root)
		_, _, err = audit.ReadEvent(rec.Body)
		require.ErrorIs(t, err, audit.ErrNoEntry)
	}
}

// The logs and the pin are put back to an earlier copy. The note on the sinks' newest
// entry shows it, in an entry for the sinks too; the relay takes events as before.
func TestATrailPutBackIsToldToTheSinks(t *testing.T) {
	t.Parallel()
	made := newDamageable(t)
	cfg := made.copied(t)
	earlier := t.TempDir()
	require.NoError(t, os.CopyFS(earlier, os.DirFS(cfg.DataDir)))
	had := publishedSize(t, cfg)
	r := start(t, cfg)
	client := console.NewClient(cfg.DataDir)
	for range 3 {
		_, err := client.Annotate(t.Context(), timeline.Annotation{Index: 1, Reviewer: "r"})
		require.NoError(t, err)
	}
	waiting.Until(t, func() bool { return len(auditEvents(r.path)) >= had+4 }, "the start and the annotations are not at the sink")
	require.NoError(t, r.stop())
	end := publishedSize(t, cfg)
	require.Equal(t, had+5, end, "the start, the annotations and the stop")
	for _, part := range []string{"store/" + audit.EntriesLog, "store/" + audit.CheckpointsLog, "audit.key.checkpoint"} {
		require.NoError(t, os.RemoveAll(filepath.Join(cfg.DataDir, part)))
		if info, err := os.Stat(filepath.Join(earlier, part)); err == nil && info.IsDir() {
			require.NoError(t, os.CopyFS(filepath.Join(cfg.DataDir, part), os.DirFS(filepath.Join(earlier, part))))
			continue
		}
		text, err := os.ReadFile(filepath.Join(earlier, part))
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(cfg.DataDir, part), text, 0o600))
	}
	assertRunsAndNames(t, cfg, made.issued, true)
	assert.Contains(t, strings.Join(namings(t, r.path), "\n"), fmt.Sprint("missing", had, end-1))
}

// The whole data directory is put back to an earlier copy (streams, pin, key and notes), except
// for the trail's files. An entry tells of it, at the sinks too. The checkpoint
// of a stop is in the files at once.
func TestATrailBehindItsFilesIsToldToTheSinks(t *testing.T) {
	t.Parallel()
	made := newDamageable(t)
	cfg := made.copied(t)
	earlier := t.TempDir()
	require.NoError(t, os.CopyFS(earlier, os.DirFS(cfg.DataDir)))
	had := publishedSize(t, cfg)
	r := start(t, cfg)
	client := console.NewClient(cfg.DataDir)
	_, err := client.Annotate(t.Context(), timeline.Annotation{Index: 1, Reviewer: "r"})
	require.NoError(t, err)
	code, status := r.get("/status")
	require.Equal(t, 200, code)
	require.Contains(t, status, `"heartbeat_gaps": []`)
	require.NoError(t, r.stop())
	newest := tiles.Open(filepath.Join(cfg.DataDir, tiles.Dir)).Published()
	require.Len(t, newest, 1)
	end := sizeOf(t, newest[0].Checkpoint)
	require.Equal(t, had+3, end, "the start, the annotation and the stop")
	require.Contains(t, newest[0].Checkpoint, "auditrelay/heartbeat 0\n", "signed at the stop")
	files, err := os.ReadDir(cfg.DataDir)
	require.NoError(t, err)
	for _, f := range files {
		if f.Name() != tiles.Dir {
			require.NoError(t, os.RemoveAll(filepath.Join(cfg.DataDir, f.Name())))
		}
	}
	require.NoError(t, os.RemoveAll(filepath.Join(earlier, tiles.Dir)))
	require.NoError(t, os.CopyFS(cfg.DataDir, os.DirFS(earlier)))
	assertRunsAndNames(t, cfg, made.issued, true)
	assert.Contains(t, strings.Join(namings(t, r.path), "\n"), fmt.Sprint("truncated", had, end-1))
}

// publishedSize is the number of entries by the newest checkpoint in a stopped relay's files.
func publishedSize(t *testing.T, cfg *config.Config) int {
	t.Helper()
	newest := tiles.Open(filepath.Join(cfg.DataDir, tiles.Dir)).Published()
	require.Len(t, newest, 1)
	return sizeOf(t, newest[0].Checkpoint)
}
