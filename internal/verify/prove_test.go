package verify

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/transparency-dev/formats/log"
	foreign "github.com/transparency-dev/formats/proof"
	"github.com/transparency-dev/merkle/proof"
	"github.com/transparency-dev/merkle/rfc6962"
	"golang.org/x/mod/sumdb/note"

	ours "github.com/auditrelay/auditrelay/internal/proof"
)

// 1,000 of 1,000 proofs, one of them of a long record, verify in transparency-dev's
// packages; they share no code with ours.
func TestProofsVerifyInAnIndependentImplementation(t *testing.T) {
	t.Parallel()
	const n = 1000
	l := newTestLog(t, "example.com/log", 0)
	l.add(t, records(0, n-1)...)
	l.add(t, make([]byte, ours.MaxLeaf+1))
	l.sign(t)
	files := l.write(t)
	p, err := NewProver(t.Context(), files.fetch, []string{""})
	require.NoError(t, err)
	assert.Equal(t, []string{l.key.verifier}, p.Keys())
	assert.EqualValues(t, n, p.End())
	verifier, err := note.NewVerifier(l.key.verifier)
	require.NoError(t, err)
	for i := range int64(n) {
		made, err := p.Prove(t.Context(), i)
		require.NoError(t, err)
		file := made.Proof.Marshal()
		require.NoError(t, verifyForeign(file, made.Record, verifier))
		made.Record = append(made.Record[:len(made.Record):len(made.Record)], 'x')
		require.Error(t, verifyForeign(file, made.Record, verifier))
	}
	_, err = p.Prove(t.Context(), n)
	require.ErrorIs(t, err, ErrNoEntry)
}

func verifyForeign(file, record []byte, verifier note.Verifier) error {
	var p foreign.TLogProof
	if err := p.Unmarshal(file); err != nil {
		return err
	}
	c, _, _, err := log.ParseCheckpoint(p.Checkpoint, verifier.Name(), verifier)
	if err != nil {
		return err
	}
	path := make([][]byte, 0, len(p.Hashes))
	for _, h := range p.Hashes {
		path = append(path, h[:])
	}
	leaf := record
	if len(record) > ours.MaxLeaf {
		leaf = ours.LeafData(record)
	}
	return proof.VerifyInclusion(rfc6962.DefaultHasher, p.Index, c.Size, rfc6962.DefaultHasher.HashLeaf(leaf), path, c.Hash)
}

func TestADamagedEntryIsNotProven(t *testing.T) {
	t.Parallel()
	l := newTestLog(t, "example.com/log", 0)
	l.add(t, records(0, 300)...)
	l.sign(t)
	f := l.write(t)
	f["tile/entries/000"] = flipped(f["tile/entries/000"], 9)
	f["tile/0/001.p/44"] = flipped(f["tile/0/001.p/44"], 9)
	p, err := NewProver(t.Context(), f.fetch, []string{""})
	require.NoError(t, err)
	_, err = p.Prove(t.Context(), 0)
	require.ErrorContains(t, err, "prove entry 0: ")
	_, err = p.Prove(t.Context(), 256)
	require.ErrorContains(t, err, "'auditrelay trail verify' names the damage")
	delete(f, "tile/entries/000")
	_, err = p.Prove(t.Context(), 1)
	require.Error(t, err)
}

// The proofs of cmd/proof, in AUDITRELAY_PROOF_DIR.
func TestProofFilesVerifyInAnIndependentImplementation(t *testing.T) {
	dir := os.Getenv("AUDITRELAY_PROOF_DIR")
	if dir == "" {
		t.Skip("cmd/proof runs it")
	}
	key, err := os.ReadFile(os.Getenv("AUDITRELAY_PROOF_KEY"))
	require.NoError(t, err)
	verifier, err := note.NewVerifier(strings.TrimSpace(string(key)))
	require.NoError(t, err)
	names, err := filepath.Glob(filepath.Join(dir, "*"+ours.Extension))
	require.NoError(t, err)
	require.NotEmpty(t, names)
	for _, name := range names {
		file, err := os.ReadFile(name)
		require.NoError(t, err)
		record, err := os.ReadFile(strings.TrimSuffix(name, ours.Extension) + ".json")
		require.NoError(t, err)
		require.NoError(t, verifyForeign(file, record, verifier), name)
	}
}
