package verify

import (
	"fmt"
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

	ours "github.com/auditrelay/auditrelay/internal/trail/proof"
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

// A policy has each key once, under the oldest log's name: it serves the proofs of all
// generations, with the same key and with a rotated one.
func TestAPolicyServesEachGeneration(t *testing.T) {
	t.Parallel()
	f, dirs := files{}, []string{"0", "1", "2", "3"}
	for i, name := range []string{"example.com/log", "example.com/log/from-5", "example.com/log/from-10", "example.com/log/from-15"} {
		l := newTestLog(t, name, int64(5*i))
		if i >= 2 {
			l.key = renamedKey(t, "the second secret", name)
		}
		l.add(t, records(5*i, 5*i+5)...)
		l.sign(t)
		for file, data := range l.write(t) {
			f[dirs[i]+"/"+file] = data
		}
	}
	p, err := NewProver(t.Context(), f.fetch, dirs)
	require.NoError(t, err)
	require.Len(t, p.Keys(), 2)
	var logs []ours.Log
	for _, key := range p.Keys() {
		logs = append(logs, ours.Log{Key: key})
	}
	trusted, err := ours.NewPolicy(logs, nil, 0)
	require.NoError(t, err)
	for _, index := range []int64{2, 7, 12, 17} {
		made, err := p.Prove(t.Context(), index)
		require.NoError(t, err)
		own, err := PolicyFor(trusted, made.Origin)
		require.NoError(t, err)
		c, _, err := made.Proof.Verify(ours.LeafHash(made.Record), own)
		require.NoError(t, err, index)
		assert.Equal(t, made.Origin, c.Origin)
	}
}

// A log whose history is lost names no key of its own. Nobody can verify its proofs then without being told one.
func TestALogThatNamesNoKeyAsksForOne(t *testing.T) {
	t.Parallel()
	l := newTestLog(t, "example.com/log", 0)
	l.add(t, records(0, 5)...)
	l.sign(t)
	f := l.write(t)
	delete(f, ours.HistoryFile)
	p, err := NewProver(t.Context(), f.fetch, []string{""})
	require.NoError(t, err)
	own, err := OwnTrust(p, nil, 0)
	require.NoError(t, err)
	_, err = own.Prove(t.Context(), p, 3)
	require.ErrorContains(t, err, `prove entry 3: the log "example.com/log" is none of the policy's; it names no key in checkpoints: give --key or --policy`)
	_, err = Trust{Policy: *policy(t, 0, newKey(t, "example.com/other").verifier)}.Prove(t.Context(), p, 3)
	require.EqualError(t, err, `prove entry 3: the log "example.com/log" is none of the policy's`)
	_, err = Trust{Policy: *policy(t, 0, l.key.verifier)}.Prove(t.Context(), p, 3)
	require.NoError(t, err)
}

// The index in a bundle stands outside of the hashed entry. It is a stranger's word, too.
func TestAnEntryIsProvenWithItsIndex(t *testing.T) {
	t.Parallel()
	for _, base := range []int64{0, 500} {
		origin := "example.com/log"
		if base > 0 {
			origin += "/from-500"
		}
		l := newTestLog(t, origin, base)
		all := records(0, 20)
		l.add(t, all...)
		l.sign(t)
		p, err := NewProver(t.Context(), l.write(t).fetch, []string{""})
		require.NoError(t, err)
		made, err := p.Prove(t.Context(), base+7)
		require.NoError(t, err)
		file := string(made.Proof.Marshal())
		trusted := *policy(t, 0, newKey(t, "example.com/log").verifier) // of the first generation
		_, _, err = Entry(trusted, file, base+7, string(all[7]))
		require.NoError(t, err)
		_, _, err = Entry(trusted, file, base+8, string(all[7]))
		require.ErrorContains(t, err, fmt.Sprintf("the entry stands at index %d, not at %d", base+7, base+8))
		_, _, err = Entry(trusted, file, base+7, string(all[8]))
		require.Error(t, err)
		_, _, err = Entry(trusted, "", base+7, string(all[7]))
		require.ErrorContains(t, err, "no proof of the trail")
	}
}
