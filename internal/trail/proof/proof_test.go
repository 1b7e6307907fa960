package proof

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	foreign "github.com/transparency-dev/formats/proof"
	"github.com/transparency-dev/merkle/proof"
	"github.com/transparency-dev/merkle/rfc6962"
	"golang.org/x/mod/sumdb/tlog"
)

func TestProofsAreReadByAnIndependentImplementation(t *testing.T) {
	t.Parallel()
	const size = 300
	tree := newTestTree(t, size)
	signer, vkey := testKey(t, "example.com/log")
	checkpoint := tree.checkpoint(t, "example.com/log", size)
	signed := sign(t, checkpoint, signer)
	policy, err := NewPolicy([]Log{{Key: vkey}}, nil, 0)
	require.NoError(t, err)
	for i, record := range tree.records {
		hashes, err := tlog.ProveRecord(size, int64(i), tree)
		require.NoError(t, err)
		file := Proof{Index: int64(i), Hashes: hashes, Checkpoint: signed}.Marshal()

		ours, err := ParseProof(file)
		require.NoError(t, err)
		c, by, err := ours.Verify(LeafHash(record), policy)
		require.NoError(t, err)
		require.Equal(t, checkpoint, c)
		require.Equal(t, vkey, by.Log)
		_, _, err = ours.Verify(LeafHash([]byte("another")), policy)
		require.ErrorContains(t, err, fmt.Sprintf("the record is not entry %d", i))

		var theirs foreign.TLogProof
		require.NoError(t, theirs.Unmarshal(file))
		path := make([][]byte, 0, len(theirs.Hashes))
		for _, h := range theirs.Hashes {
			path = append(path, h[:])
		}
		require.NoError(t, proof.VerifyInclusion(rfc6962.DefaultHasher, theirs.Index, size,
			rfc6962.DefaultHasher.HashLeaf(LeafData(record)), path, checkpoint.Root[:]))
	}
}

func TestProofsRoundTripWithAndWithoutExtraData(t *testing.T) {
	t.Parallel()
	for _, p := range []Proof{
		{Checkpoint: []byte("a\n0\nb\n\n— a x\n")},
		{Index: 5, Extra: []byte{}, Hashes: tlog.RecordProof{{1}, {2}}, Checkpoint: []byte("a\n")},
		{Index: 1 << 62, Extra: []byte("more"), Checkpoint: nil},
	} {
		read, err := ParseProof(p.Marshal())
		require.NoError(t, err)
		assert.Equal(t, p.Marshal(), read.Marshal())
		assert.Equal(t, p.Index, read.Index)
		assert.Equal(t, p.Extra, read.Extra)
	}
}

func TestOtherBytesAreNoProof(t *testing.T) {
	t.Parallel()
	hash := strings.Repeat("A", 43) + "="
	for text, want := range map[string]string{
		"": "does not begin with", "c2sp.org/tlog-proof@v2\nindex 0\n\nx\n": "does not begin with",
		"c2sp.org/tlog-proof@v1\nindex 0\n":                                           "has no checkpoint",
		"c2sp.org/tlog-proof@v1\n\nx\n":                                               "no line with the index",
		"c2sp.org/tlog-proof@v1\nextra Y\nindex 0\n\nx\n":                             "extra data",
		"c2sp.org/tlog-proof@v1\nextra YQ\r==\nindex 0\n\nx\n":                        "usual spelling",
		"c2sp.org/tlog-proof@v1\nindex 00\n\nx\n":                                     "its index",
		"c2sp.org/tlog-proof@v1\nindex -1\n\nx\n":                                     "its index",
		"c2sp.org/tlog-proof@v1\nindex 0\n" + hash[1:] + "\n\nx\n":                    "a hash",
		"c2sp.org/tlog-proof@v1\nindex 0\n" + hash[:42] + "B=\n\nx\n":                 "a hash",
		"c2sp.org/tlog-proof@v1\nindex 0\n" + strings.Repeat(hash+"\n", 64) + "\nx\n": "64 hashes",
	} {
		_, err := ParseProof([]byte(text))
		assert.ErrorContains(t, err, want, "%q", text)
	}
}

func TestCheckpoints(t *testing.T) {
	t.Parallel()
	root := strings.Repeat("A", 43) + "=\n"
	for _, text := range []string{"example.com/log\n0\n" + root, "a b+c\n1152921504606846976\n" + root + "more\nlines\n"} {
		c, err := ParseCheckpoint(text)
		require.NoError(t, err)
		assert.Equal(t, text, c.String())
	}
	for _, text := range []string{
		"", "\n", "a\n0\n", "a\n0\n" + root[:44], "\n0\n" + root, "a\n00\n" + root, "a\n-1\n" + root, "a\n+1\n" + root,
		"a\n9223372036854775808\n" + root, "a\n1\n" + root + "\n", "a\n1\n" + root + "x\n\n", "a\n1\nAAAA\n", "a\n1\n" + root[:42] + "B=\n",
	} {
		_, err := ParseCheckpoint(text)
		assert.ErrorContains(t, err, "parse checkpoint", "%q", text)
	}
}

func TestLongRecordsHaveADigestForALeaf(t *testing.T) {
	t.Parallel()
	longest := bytes.Repeat([]byte("x"), MaxLeaf)
	assert.Equal(t, longest, LeafData(longest))
	long := append(longest, 'x')
	leaf := LeafData(long)
	d, ok := ParseDigest(leaf)
	require.True(t, ok)
	assert.True(t, d.Of(long))
	assert.False(t, d.Of(longest))
	long[7] = 'y'
	assert.False(t, d.Of(long))
	assert.Equal(t, "records/"+string(leaf[len(leaf)-66:len(leaf)-2]), d.Path())
	for _, other := range []string{
		"", "{}", string(leaf) + " ", strings.ToUpper(string(leaf)), strings.Replace(string(leaf), "65536", "065536", 1),
		strings.Replace(string(leaf), "65536", "65535", 1), strings.Replace(string(leaf), `sha256":"`, `sha256":"0`, 1),
	} {
		_, ok := ParseDigest([]byte(other))
		assert.False(t, ok, other)
	}
}

func TestPathsOfTiles(t *testing.T) {
	t.Parallel()
	for path, tile := range map[string]tlog.Tile{
		"tile/0/000":               {H: 8, L: 0, N: 0, W: 256},
		"tile/0/x001/234.p/5":      {H: 8, L: 0, N: 1234, W: 5},
		"tile/63/x001/x234/067":    {H: 8, L: 63, N: 1234067, W: 256},
		"tile/entries/999.p/255":   {H: 8, L: -1, N: 999, W: 255},
		"tile/entries/x001/000":    {H: 8, L: -1, N: 1000, W: 256},
		"tile/entries/x100/000/00": {},
		"tile/0/x000/001":          {}, "tile/0/1": {}, "tile/00/001": {}, "tile/64/001": {}, "tile/0/001.p/0": {}, "tile/0/001.p/256": {},
		"tile/0/001/002": {}, "tile/-1/000": {}, "tile/0/x001": {}, "tile/0/../000": {}, "tile/data/000": {}, "0/000": {}, "tile/0/+01": {},
		"tile/0/" + strings.Repeat("x999/", 30) + "999": {},
	} {
		got, err := ParsePath(path)
		if tile.H == 0 {
			assert.ErrorContains(t, err, "is not one", path)
			continue
		}
		require.NoError(t, err, path)
		assert.Equal(t, tile, got)
	}
	assert.Equal(t, "tile/entries/x012/345.p/7", BundlePath(12345, 7))
}

func TestBundles(t *testing.T) {
	t.Parallel()
	leaves := []string{"one", "", strings.Repeat("x", MaxLeaf)}
	var bundle []byte
	for _, leaf := range leaves {
		bundle = AppendBundle(bundle, []byte(leaf))
	}
	var got []string
	all, err := Leaves(bundle)
	require.NoError(t, err)
	for _, leaf := range all {
		got = append(got, string(leaf))
	}
	assert.Equal(t, leaves, got)
	all, err = Leaves(make([]byte, 1<<20)) // empty leaves, whose memory would be many times theirs
	require.NoError(t, err)
	assert.Len(t, all, TileWidth+1)
	for cut, want := range map[int]int{1: 2, MaxLeaf + 1: 2, MaxLeaf + 2: 2, MaxLeaf + 3: 1, len(bundle) - 1: 0} {
		whole, err := Leaves(bundle[:len(bundle)-cut])
		assert.Len(t, whole, want)
		assert.Equal(t, cut != MaxLeaf+2, err != nil, cut)
	}
	assert.Panics(t, func() { AppendBundle(nil, make([]byte, MaxLeaf+1)) })
}

// Above 2^62 leaves, package tlog would compute without end.
func TestHugeTreesAreRefused(t *testing.T) {
	t.Parallel()
	root := strings.Repeat("A", 43) + "="
	for _, size := range []string{"9223372036854775807", "4611686018427387905", "1152921504606846977"} {
		_, err := ParseCheckpoint("example.com/log\n" + size + "\n" + root + "\n")
		require.ErrorContains(t, err, "more than the 1152921504606846976 leaves readable by this version")
	}
	_, err := ParseCheckpoint("example.com/log\n1152921504606846976\n" + root + "\n")
	require.NoError(t, err)
	for _, size := range []int64{MaxSize, MaxSize + 1, 1<<63 - 1} {
		assert.False(t, IsInTree(nil, size, tlog.Hash{}, size-1, tlog.Hash{}))
	}
}
