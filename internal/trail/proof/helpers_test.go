package proof

import (
	"crypto/ed25519"
	"crypto/sha256"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	cosign "github.com/transparency-dev/formats/note"
	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"
)

// testKey is a key of the note form, the same one for each name.
func testKey(tb testing.TB, name string) (note.Signer, string) {
	tb.Helper()
	skey, vkey := testKeyText(tb, name)
	s, err := note.NewSigner(skey)
	require.NoError(tb, err)
	return s, vkey
}

func testKeyText(tb testing.TB, name string) (skey, vkey string) {
	tb.Helper()
	seed := sha256.Sum256([]byte(name))
	private := ed25519.NewKeyFromSeed(seed[:])
	public, _ := private.Public().(ed25519.PublicKey)
	vkey, err := note.NewEd25519VerifierKey(name, public)
	require.NoError(tb, err)
	k, err := parseKey(vkey)
	require.NoError(tb, err)
	raw := k
	raw.bytes = seed[:]
	return fmt.Sprintf("PRIVATE+KEY+%s+%08x+%s", name, k.hash(), raw.String()[len(name)+10:]), vkey
}

// testWitness is a witness's signer and its verifier key, of the type for cosignatures.
func testWitness(tb testing.TB, name string) (note.Signer, string) {
	tb.Helper()
	skey, vkey := testKeyText(tb, name)
	s, err := cosign.NewSignerForCosignatureV1(skey)
	require.NoError(tb, err)
	vkey, err = cosign.VKeyToCosignatureV1(vkey)
	require.NoError(tb, err)
	return s, vkey
}

// testTree has the leaves of n records.
type testTree struct {
	records [][]byte
	hashes  []tlog.Hash // by stored index
}

func (t *testTree) ReadHashes(indexes []int64) ([]tlog.Hash, error) {
	list := make([]tlog.Hash, 0, len(indexes))
	for _, i := range indexes {
		list = append(list, t.hashes[i])
	}
	return list, nil
}

func (t *testTree) add(tb testing.TB, record []byte) {
	tb.Helper()
	more, err := tlog.StoredHashesForRecordHash(int64(len(t.records)), LeafHash(record), t)
	require.NoError(tb, err)
	t.records, t.hashes = append(t.records, record), append(t.hashes, more...)
}

func newTestTree(tb testing.TB, n int) *testTree {
	tb.Helper()
	t := &testTree{}
	for i := range n {
		t.add(tb, fmt.Appendf(nil, `{"type":"test","number":%d}`, i))
	}
	return t
}

func (t *testTree) checkpoint(tb testing.TB, origin string, size int64) Checkpoint {
	tb.Helper()
	root, err := tlog.TreeHash(size, t)
	require.NoError(tb, err)
	return Checkpoint{Origin: origin, Size: size, Root: root}
}

func sign(tb testing.TB, c Checkpoint, signers ...note.Signer) []byte {
	tb.Helper()
	signed, err := note.Sign(&note.Note{Text: c.String()}, signers...)
	require.NoError(tb, err)
	return signed
}
