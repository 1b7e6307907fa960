package audit

import (
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/auditrelay/auditrelay/internal/store"
)

// FuzzDecodeRecord: whatever stands in a stream, reading it gives an error or
// an entry, and no panic.
func FuzzDecodeRecord(f *testing.F) {
	c := newCodec()
	record, err := encodeRecord(testEntry(1))
	require.NoError(f, err)
	f.Add(record, false)
	f.Add(c.enc.EncodeAll(record, nil), true)
	f.Add([]byte(`{"window":{}}`), false)
	f.Fuzz(func(t *testing.T, data []byte, compressed bool) {
		r := &store.Record{Draft: store.Draft{Kind: kindPlain, Data: data}}
		if compressed {
			r.Kind = kindZstd
		}
		got, err := c.unpack(r)
		if err != nil {
			return
		}
		if e, err := decodeRecord(got, 7); err == nil {
			require.EqualValues(t, 7, e.Index)
		}
	})
}

// FuzzDecodeKept: only what the key has signed is taken for a checkpoint of its own.
func FuzzDecodeKept(f *testing.F) {
	key, err := generateKey(f.TempDir()+"/key", "example.com/trail")
	require.NoError(f, err)
	signedTree := tree{}.With(tlog.Hash{1}, tlog.Hash{2})
	text, err := signCheckpoint(f.Context(), key, signedTree, "", testTime)
	require.NoError(f, err)
	data, err := encodeKept(key, text, testTime, tree{}, []tlog.Hash{{1}, {2}})
	require.NoError(f, err)
	f.Add(data.Data)
	f.Add([]byte(`{"checkpoint":"example.com/trail\n1\n\n\n— x"}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := decodeKept(&store.Record{Pos: 1, Draft: store.Draft{Data: data}})
		if err == nil && key.isOwn(c.PublicKey) { // another key's is named
			require.EqualValues(t, 2, c.Size)
			require.Equal(t, signedTree.Root(), c.Root)
			c.at(c.Size)
		}
	})
}
