package proof

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/mod/sumdb/tlog"
)

// Each parser: what it takes, it spells again in the same bytes.

func FuzzParseCheckpoint(f *testing.F) {
	f.Add("example.com/log\n3\nAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=\n")
	f.Fuzz(func(t *testing.T, text string) {
		if c, err := ParseCheckpoint(text); err == nil && c.String() != text {
			t.Errorf("%q became %q", text, c.String())
		}
	})
}

func FuzzParseProof(f *testing.F) {
	f.Add(Proof{Index: 7, Extra: []byte("x"), Hashes: tlog.RecordProof{{1}, {2}}, Checkpoint: []byte("a\n\nb\n")}.Marshal())
	_, key := testKey(f, "example.com/log")
	policy, err := NewPolicy([]Log{{Key: key}}, nil, 0)
	require.NoError(f, err)
	f.Fuzz(func(t *testing.T, data []byte) {
		p, err := ParseProof(data)
		if err != nil {
			return
		}
		if !bytes.Equal(p.Marshal(), data) {
			t.Errorf("%q became %q", data, p.Marshal())
		}
		if _, _, err := p.Verify(tlog.Hash{}, policy); err == nil {
			t.Errorf("%q proves something", data)
		}
	})
}

func FuzzParsePolicy(f *testing.F) {
	_, key := testKey(f, "example.com/log")
	_, w := testWitness(f, "w.example")
	f.Add("log " + key + " url\nwitness a " + w + "\ngroup g 1 a\nquorum g\n")
	f.Add("# \xff\n\t \nquorum none\n")
	f.Fuzz(func(t *testing.T, text string) {
		policy, err := ParsePolicy(text)
		if err != nil {
			return
		}
		if _, _, err := policy.Open([]byte(text)); err == nil {
			t.Errorf("%q opens itself", text)
		}
	})
}

func FuzzOpen(f *testing.F) {
	signer, key := testKey(f, "example.com/log")
	c := newTestTree(f, 3).checkpoint(f, "example.com/log", 3)
	good := sign(f, c, signer)
	f.Add(good)
	policy, err := NewPolicy([]Log{{Key: key}}, nil, 0)
	require.NoError(f, err)
	f.Fuzz(func(t *testing.T, signed []byte) {
		if got, _, err := policy.Open(signed); err == nil && got.String() != c.String() {
			t.Errorf("%q was never signed", got)
		}
	})
}

func FuzzBundle(f *testing.F) {
	f.Add(AppendBundle(AppendBundle(nil, []byte("one")), nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		leaves, err := Leaves(b)
		if err != nil || len(leaves) > TileWidth {
			return
		}
		var again []byte
		for _, leaf := range leaves {
			again = AppendBundle(again, leaf)
		}
		if !bytes.Equal(again, b) {
			t.Errorf("%x became %x", b, again)
		}
	})
}

func FuzzParsePath(f *testing.F) {
	f.Add("tile/0/x001/234.p/5")
	f.Add("tile/entries/000")
	f.Fuzz(func(t *testing.T, path string) {
		tile, err := ParsePath(path)
		if err == nil && tile.L >= 0 && TilePath(tile) != path {
			t.Errorf("%q became %q", path, TilePath(tile))
		}
	})
}

func FuzzParseDigest(f *testing.F) {
	f.Add(LeafData(make([]byte, MaxLeaf+1)))
	f.Fuzz(func(t *testing.T, leaf []byte) {
		if d, ok := ParseDigest(leaf); ok && !bytes.Equal(d.Leaf(), leaf) {
			t.Errorf("%q became %q", leaf, d.Leaf())
		}
	})
}
