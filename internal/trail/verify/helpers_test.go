package verify

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	cosign "github.com/transparency-dev/formats/note"
	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/auditrelay/auditrelay/internal/trail/proof"
)

// files are a folder in memory.
type files map[string][]byte

func (f files) fetch(_ context.Context, path string) (io.ReadCloser, error) {
	data, there := f[path]
	if !there {
		return nil, fmt.Errorf("%s: %w", path, fs.ErrNotExist)
	}
	return io.NopCloser(bytes.NewReader(data)), nil
}

func (f files) clone() files { return maps.Clone(f) }

// key is a log's signing key, in the forms for both of its signatures.
type key struct {
	text, verifier string
	signers        []note.Signer
}

func newKey(tb testing.TB, name string) key {
	tb.Helper()
	return renamedKey(tb, proof.TrailOf(name), name)
}

// renamedKey is the key of a name under another one.
func renamedKey(tb testing.TB, of, name string) key {
	tb.Helper()
	seed := sha256.Sum256([]byte(of))
	public, _ := ed25519.NewKeyFromSeed(seed[:]).Public().(ed25519.PublicKey)
	verifier, err := note.NewEd25519VerifierKey(name, public)
	require.NoError(tb, err)
	hash := strings.Split(verifier, "+")[1]
	text := "PRIVATE+KEY+" + name + "+" + hash + "+" + base64.StdEncoding.EncodeToString(append([]byte{1}, seed[:]...))
	plain, err := note.NewSigner(text)
	require.NoError(tb, err)
	timed, err := cosign.NewSignerForCosignatureV1(text)
	require.NoError(tb, err)
	return key{text, verifier, []note.Signer{plain, timed}}
}

// testLog makes the files of a log, in the layout of the relay.
type testLog struct {
	key     key
	base    int64
	leaves  [][]byte
	hashes  []tlog.Hash
	files   files
	seq     int
	newest  []byte
	signers []note.Signer // besides the log
}

func newTestLog(tb testing.TB, name string, base int64) *testLog {
	tb.Helper()
	return &testLog{key: newKey(tb, name), base: base, files: files{}}
}

func (l *testLog) ReadHashes(indexes []int64) ([]tlog.Hash, error) {
	list := make([]tlog.Hash, 0, len(indexes))
	for _, i := range indexes {
		list = append(list, l.hashes[i])
	}
	return list, nil
}

// add appends records.
func (l *testLog) add(tb testing.TB, records ...[]byte) {
	tb.Helper()
	for _, record := range records {
		leaf := proof.LeafData(record)
		if d, long := proof.ParseDigest(leaf); long {
			l.files[d.Path()] = record
		}
		more, err := tlog.StoredHashes(int64(len(l.leaves)), leaf, l)
		require.NoError(tb, err)
		l.leaves, l.hashes = append(l.leaves, leaf), append(l.hashes, more...)
	}
}

// sign adds a checkpoint of all entries to the history.
func (l *testLog) sign(tb testing.TB) {
	tb.Helper()
	l.newest = l.checkpoint(tb, int64(len(l.leaves)))
	l.seq++
	text, err := json.Marshal(proof.Line{Seq: uint64(l.seq), Key: l.key.verifier, Checkpoint: string(l.newest)})
	require.NoError(tb, err)
	l.files[proof.HistoryFile] = append(l.files[proof.HistoryFile], append(text, '\n')...)
	l.files[proof.CheckpointFile] = l.newest
}

func (l *testLog) checkpoint(tb testing.TB, size int64) []byte {
	tb.Helper()
	root, err := tlog.TreeHash(size, l)
	require.NoError(tb, err)
	c := proof.Checkpoint{Origin: l.key.signers[0].Name(), Size: size, Root: root}
	signed, err := note.Sign(&note.Note{Text: c.String()}, append(l.key.signers, l.signers...)...)
	require.NoError(tb, err)
	return signed
}

// write writes the tiles and bundles.
func (l *testLog) write(tb testing.TB) files {
	tb.Helper()
	size := int64(len(l.leaves))
	for _, t := range tlog.NewTiles(proof.TileHeight, 0, size) {
		data, err := tlog.ReadTileData(t, l)
		require.NoError(tb, err)
		l.files[proof.TilePath(t)] = data
		if t.L > 0 {
			continue
		}
		var bundle []byte
		for _, leaf := range l.leaves[t.N*width : t.N*width+int64(t.W)] {
			bundle = proof.AppendBundle(bundle, leaf)
		}
		l.files[proof.BundlePath(t.N, t.W)] = bundle
	}
	return l.files
}

// record is a short entry; each is another one.
func record(i int) []byte {
	return fmt.Appendf(nil, `{"after":{"n":%d},"environment":"live","project":"acme","subject":"s","time":"2026-03-01T00:00:00Z","type":"settings.changed"}`, i)
}

func records(from, to int) (list [][]byte) {
	for i := from; i < to; i++ {
		list = append(list, record(i))
	}
	return list
}

// policy trusts a log, and need of the witnesses.
func policy(tb testing.TB, need int, verifier string, witnesses ...proof.Witness) *proof.Policy {
	tb.Helper()
	p, err := proof.NewPolicy([]proof.Log{{Key: verifier}}, witnesses, need)
	require.NoError(tb, err)
	return &p
}

// check verifies one log.
func check(tb testing.TB, f files, o Options) Report {
	tb.Helper()
	r, err := Trail(tb.Context(), f.fetch, []string{""}, o)
	require.NoError(tb, err)
	return r
}

// sound fails where anything was found.
func sound(tb testing.TB, r Report) {
	tb.Helper()
	require.Empty(tb, r.Integrity.Findings)
	require.Empty(tb, r.Completeness.Findings)
	require.True(tb, r.Integrity.Holds && r.Completeness.Holds)
}

var day = time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)

func mustLine(tb testing.TB, text []byte) (l proof.Line) {
	tb.Helper()
	require.NoError(tb, json.Unmarshal(text, &l))
	return l
}

func spellLine(tb testing.TB, l proof.Line) []byte {
	tb.Helper()
	text, err := json.Marshal(l)
	require.NoError(tb, err)
	return append(text, '\n')
}
