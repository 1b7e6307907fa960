package app

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/auditrelay/auditrelay/internal/audit"
	"github.com/auditrelay/auditrelay/internal/testbed/waiting"
	"github.com/auditrelay/auditrelay/sinks/file"
)

// A sink's copy suffices to compute the root that was signed, with the public key alone:
// each event has its leaf and the root up to it, and the checkpoints are there too, each
// behind its entries, and once after a restart.
func TestASinksCopyProvesTheTrail(t *testing.T) {
	t.Parallel()
	cfg := newDamageable(t).copied(t)
	r := start(t, cfg)
	var entries, checkpoints []file.Record
	waiting.Until(t, func() bool {
		entries, checkpoints = trailEvents(r.path)
		return len(entries) >= 30 && len(checkpoints) > 0 && strings.Contains(checkpoints[len(checkpoints)-1].ID(), "@checkpoint-30-")
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
		place, err := audit.PlaceOfEvent(rec.Body)
		require.NoError(t, err)
		if place.Index < size {
			continue // it came again
		}
		require.Equal(t, size, place.Index)
		leaf, err := audit.LeafOfEvent(rec.Body)
		require.NoError(t, err)
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
		_, err = audit.LeafOfEvent(rec.Body)
		require.ErrorIs(t, err, audit.ErrNoEntry)
	}
}
