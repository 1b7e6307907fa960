package verify

import (
	"cmp"
	"context"
	"crypto/sha256"
	"fmt"
	"slices"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/auditrelay/auditrelay/internal/trail/proof"
)

// width is how many leaves a chunk has: one entry bundle, and one tile of leaf hashes.
const width = proof.TileWidth

// chunk has up to 256 leaves twice: from an entry bundle, and from a tile.
type chunk struct {
	n     int64
	width int
	// bundle and tile are the leaves' hashes, computed and as kept; nil where the file is
	// not there or too short. A leaf missing in the bundle is a zero hash.
	bundle, tile []tlog.Hash
	bundleFile   string // by the width of the tree
	fileWidth    int    // of the file as read: a full one may stand for a partial one
	bundleWrong  string // why the file is not whole
	tileFile     string
	tileWrong    string
	records      []proof.Finding // about long records, and about the end of the bundle's file
	beyond       *proof.Finding  // entries in the file that no checkpoint covers; nil for none
	facts        []fact
}

// agree reports whether bundle and tile are whole and alike.
func (c *chunk) agree() bool { return c.tile != nil && slices.Equal(c.bundle, c.tile) }

// leaves are the chunk's, as both of its files have them.
func (c *chunk) leaves() *proof.LeafLists {
	return &proof.LeafLists{Lists: [][]tlog.Hash{c.bundle, c.tile}}
}

// treeOf is the root of the tree over the hashes of all parts of a tile; zero where one of them is
// not known.
func treeOf(hashes []tlog.Hash) tlog.Hash {
	if len(hashes) < width || slices.Contains(hashes, tlog.Hash{}) {
		return tlog.Hash{}
	}
	return proof.Edge{}.With(hashes...).Root()
}

// readChunk reads the n-th chunk of a tree.
func (l *logCheck) readChunk(ctx context.Context, n, size int64) (*chunk, error) {
	w := int(min(width, size-n*width))
	c := &chunk{n: n, width: w, tileFile: proof.TilePath(tlog.Tile{N: n, W: w})}
	var err error
	if c.tile, c.tileWrong, err = l.readHashes(ctx, 0, n, w); err != nil {
		return nil, err
	}
	data, err := l.readBundle(ctx, c)
	if err != nil || data == nil {
		return c, err
	}
	buffer := make([]byte, 1, 4096) // 0, and the leaf: RFC 6962, section 2.1
	c.bundle = make([]tlog.Hash, 0, width)
	leaves, err := proof.Leaves(data) // the file may be wider than the tree
	if err != nil {
		c.bundleWrong = err.Error()
	}
	for i, leaf := range leaves[:min(len(leaves), c.width)] {
		buffer = append(buffer[:1], leaf...)
		c.bundle = append(c.bundle, sha256.Sum256(buffer))
		if err := l.readLeaf(ctx, c, n*width+int64(i), leaf); err != nil {
			return nil, err
		}
	}
	switch {
	case len(c.bundle) < c.width: // the missing entries are named
		c.bundleWrong = cmp.Or(c.bundleWrong, fmt.Sprintf("it has %d entries, not %d", len(c.bundle), c.width))
	case c.bundleWrong != "":
		c.wrong(proof.KindAltered, l.origin, -1, c.bundleFile, c.bundleWrong)
	case len(leaves) != c.fileWidth:
		c.wrong(proof.KindAltered, l.origin, -1, c.bundleFile, fmt.Sprintf("it has %d entries, not %d", len(leaves), c.fileWidth))
	default:
		l.checkBeyond(c, c.bundleFile, len(leaves))
	}
	for len(c.bundle) < c.width {
		c.bundle = append(c.bundle, tlog.Hash{})
	}
	return c, l.checkFull(ctx, c)
}

// checkFull reads the full bundle, if there is one as well as the partial one. Readers take
// either, so it has to begin with the same entries.
func (l *logCheck) checkFull(ctx context.Context, c *chunk) error {
	if c.fileWidth == width {
		return nil
	}
	file := proof.BundlePath(c.n, width)
	data, missing, err := l.fetch.read(ctx, file)
	if err != nil || missing {
		return err
	}
	first := l.base + c.n*width
	leaves, err := proof.Leaves(data)
	if err != nil {
		c.wrong(proof.KindAltered, l.origin, -1, file, err.Error())
	}
	for i, leaf := range leaves[:min(len(leaves), c.width)] {
		if tlog.RecordHash(leaf) != c.bundle[i] {
			c.wrong(proof.KindAltered, l.origin, first+int64(i), file, "it is unlike the one in "+c.bundleFile)
		}
	}
	l.checkBeyond(c, file, len(leaves))
	return nil
}

// checkBeyond notes the entries of a file after the newest checkpoint. A full bundle in the place of a
// partial one has some: a relay in use, or one that was killed, had not signed them yet.
func (l *logCheck) checkBeyond(c *chunk, file string, entries int) {
	if entries > c.width && !l.o.Live {
		first := l.base + c.n*width
		c.beyond = &proof.Finding{
			Kind: proof.KindNotCovered, Log: l.origin, From: first + int64(c.width), To: first + int64(entries) - 1, File: file,
			Detail: "no checkpoint covers them, and they stand in the file all the same",
		}
	}
}

// notThere is the finding on a missing file.
const notThere = "it is not there"

// readBundle reads the entry bundle: a full one serves where the partial one is gone.
func (l *logCheck) readBundle(ctx context.Context, c *chunk) ([]byte, error) {
	c.bundleFile = proof.BundlePath(c.n, c.width)
	data, fileWidth, missing, err := l.readWidest(ctx, c.width, func(w int) string { return proof.BundlePath(c.n, w) })
	c.fileWidth = fileWidth
	if missing && err == nil {
		c.bundleWrong = notThere
		return nil, nil
	}
	if err == nil && data == nil {
		data = []byte{}
	}
	return data, err
}

// readWidest reads a file of width w, or a full one in its place, and gives the width that it
// found. Of a log in use, the file may be gone since, and a wider one be there.
func (l *logCheck) readWidest(ctx context.Context, w int, path func(w int) string) (data []byte, found int, missing bool, err error) {
	for found = w; ; found++ {
		if found > w && found < width && (l.o == nil || !l.o.Live) {
			found = width
		}
		if data, missing, err = l.fetch.read(ctx, path(found)); !missing || found >= width {
			return data, found, missing, err
		}
	}
}

// readHashes reads the first w hashes of a tile; nil where they are not there, with
// the reason.
func (l *logCheck) readHashes(ctx context.Context, level int, n int64, w int) (hashes []tlog.Hash, wrong string, err error) {
	data, exact, missing, err := l.readWidest(ctx, w, func(w int) string { return proof.TilePath(tlog.Tile{L: level, N: n, W: w}) })
	switch {
	case err != nil:
		return nil, "", err
	case missing:
		return nil, notThere, nil
	case len(data) != exact*tlog.HashSize:
		return nil, fmt.Sprintf("it has %d bytes, not %d", len(data), exact*tlog.HashSize), nil
	}
	return proof.SplitHashes(data)[:w], "", nil
}

// readLeaf takes in one entry, and checks the record of a digest.
func (l *logCheck) readLeaf(ctx context.Context, c *chunk, leaf int64, data []byte) error {
	d, isDigest := proof.ParseDigest(data)
	if !isDigest {
		c.noteFact(l.base+leaf, data)
		return nil
	}
	record, _, err := l.fetch.read(ctx, d.Path())
	if err != nil {
		return err
	}
	if d.Of(record) {
		c.noteFact(l.base+leaf, record)
		return nil
	}
	if record == nil {
		c.wrong(proof.KindMissing, l.origin, l.base+leaf, d.Path(), "the record of a long entry is not there")
	} else {
		c.wrong(proof.KindAltered, l.origin, l.base+leaf, d.Path(), "the record of a long entry does not have the hash that was signed")
	}
	return nil
}

// wrong notes a finding about a file of one entry, or with -1 of the whole chunk.
func (c *chunk) wrong(kind, log string, entry int64, file, detail string) {
	c.records = append(c.records, proof.Finding{Kind: kind, Log: log, From: entry, To: entry, File: file, Detail: detail})
}

func (c *chunk) noteFact(index int64, record []byte) {
	if f, interesting := factOf(record); interesting {
		f.index = index
		c.facts = append(c.facts, f)
	}
}
