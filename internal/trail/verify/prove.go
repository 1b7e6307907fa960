package verify

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/auditrelay/auditrelay/internal/trail/proof"
)

// ErrNoEntry marks an entry of no log of the trail.
var ErrNoEntry = errors.New("no checkpoint covers such an entry yet")

// Prover makes proofs from a trail's files. It takes the log at its word: verify
// its proofs with a policy.
type Prover struct {
	logs []provable
}

// provable is one generation, up to its newest checkpoint.
type provable struct {
	fetch Fetch
	base  int64
	note  []byte
	key   string // as the log says itself
	at    proof.Checkpoint
	tiles tlog.HashReader
}

// Proven is an entry with its proof.
type Proven struct {
	Proof proof.Proof
	// Record is the entry; the proof is of its leaf (see [proof.LeafData]). Nil: its bundle is
	// not there, and the proof is of its hash alone.
	Record []byte
	// Leaf is the hash of its leaf.
	Leaf tlog.Hash
	// Origin is the log's.
	Origin string

	unnamed bool // the log does not name its key
}

// NewProver reads the newest checkpoint of each log.
func NewProver(ctx context.Context, fetch Fetch, dirs []string) (*Prover, error) {
	p := &Prover{}
	for _, dir := range dirs {
		g := provable{fetch: fetch.below(dir)}
		var missing bool
		var err error
		if g.note, missing, err = g.fetch.read(ctx, proof.CheckpointFile); err != nil {
			return nil, err
		}
		if missing {
			continue // a generation without a signature, or a damaged one: verify names it
		}
		if g.at, err = proof.ReadCheckpoint(g.note); err != nil {
			return nil, fmt.Errorf("read %s/%s: %w", dir, proof.CheckpointFile, err)
		}
		if _, g.key, _, err = stated(ctx, g.fetch); err != nil {
			return nil, err
		}
		g.base = proof.BaseOf(g.at.Origin)
		g.tiles = tlog.TileHashReader(tlog.Tree{N: g.at.Size, Hash: g.at.Root}, g.fetch.tiles(ctx))
		p.logs = append(p.logs, g)
	}
	if len(p.logs) == 0 {
		return nil, errors.New("there is no checkpoint: nothing was signed yet")
	}
	return p, nil
}

// Keys are the verifier keys named by the logs themselves, each public key once, under
// the name of the oldest log. Nothing vouches for them.
func (p *Prover) Keys() (keys []string) {
	for _, g := range p.logs {
		if g.key != "" && !slices.ContainsFunc(keys, func(k string) bool { return proof.SamePublicKey(k, g.key) }) {
			keys = append(keys, g.key)
		}
	}
	return keys
}

// End is the index after the newest provable entry.
func (p *Prover) End() (end int64) {
	for _, g := range p.logs {
		end = max(end, g.base+g.at.Size)
	}
	return end
}

// Prove proves the entry with an index over all generations, against the newest checkpoint
// of its log.
func (p *Prover) Prove(ctx context.Context, index int64) (Proven, error) {
	for _, g := range p.logs {
		if leaf := index - g.base; leaf >= 0 && leaf < g.at.Size {
			made, err := g.prove(ctx, leaf)
			if err != nil {
				return Proven{}, fmt.Errorf("prove entry %d: %w", index, err)
			}
			return made, nil
		}
	}
	return Proven{}, fmt.Errorf("prove entry %d: %w; entries up to %d are covered", index, ErrNoEntry, p.End()-1)
}

func (g *provable) prove(ctx context.Context, leaf int64) (Proven, error) {
	record, err := g.record(ctx, leaf)
	hash := proof.LeafHash(record)
	if err != nil {
		return Proven{}, err
	}
	hashes, err := tlog.ProveRecord(g.at.Size, leaf, g.tiles)
	if err == nil && record == nil { // then the tile has the leaf's hash
		var kept []tlog.Hash
		if kept, err = g.tiles.ReadHashes([]int64{tlog.StoredHashIndex(0, leaf)}); err == nil {
			hash = kept[0]
		}
	}
	if err != nil {
		return Proven{}, fmt.Errorf("%w; 'auditrelay trail verify' names the damage", err)
	}
	if !proof.IsInTree(hashes, g.at.Size, g.at.Root, leaf, hash) {
		return Proven{}, errors.New("it is not the signed one; 'auditrelay trail verify' names the damage")
	}
	return Proven{proof.Proof{Index: leaf, Hashes: hashes, Checkpoint: g.note}, record, hash, g.at.Origin, g.key == ""}, nil
}

// record reads an entry from its bundle, or a long one from its own file. Without the bundle it is nil.
func (g *provable) record(ctx context.Context, leaf int64) ([]byte, error) {
	n := leaf / width
	l := &logCheck{fetch: g.fetch}
	c := &chunk{n: n, width: int(min(width, g.at.Size-n*width))}
	data, err := l.readBundle(ctx, c)
	if err != nil || data == nil {
		return nil, err
	}
	leaves, err := proof.Leaves(data)
	if i := int(leaf % width); i < len(leaves) {
		d, isDigest := proof.ParseDigest(leaves[i])
		if !isDigest {
			return leaves[i], nil
		}
		record, _, err := g.fetch.read(ctx, d.Path())
		if err == nil && !d.Of(record) {
			err = fmt.Errorf("%s is not there, or damaged", d.Path())
		}
		return record, err
	}
	return nil, fmt.Errorf("%s does not have it: %w", c.bundleFile, cmp.Or(err, fs.ErrNotExist))
}

// Entry checks a .tlog-proof of an entry: of these bytes, at this index over all generations.
func Entry(policy proof.Policy, file string, index int64, record string) (proof.Checkpoint, proof.Cosigned, error) {
	if file == "" {
		return proof.Checkpoint{}, proof.Cosigned{}, errors.New("it has no proof of the trail: 'auditrelay trail prove' makes one")
	}
	n, c, by, err := Proof(policy, []byte(file), []byte(record))
	if at := proof.BaseOf(c.Origin) + n; err == nil && at != index {
		err = fmt.Errorf("the entry stands at index %d, not at %d", at, index)
	}
	return c, by, err
}

// Proof checks a .tlog-proof of a record, and gives its index in its log. The policy may be of another
// generation: see [PolicyFor].
func Proof(policy proof.Policy, file, record []byte) (index int64, c proof.Checkpoint, by proof.Cosigned, err error) {
	p, err := proof.ParseProof(file)
	if err != nil {
		return 0, c, by, err
	}
	if origin, text := originIn(p.Checkpoint); text { // else verifying the proof says why
		if policy, err = PolicyFor(policy, origin); err != nil {
			return 0, c, by, err
		}
	}
	c, by, err = p.Verify(proof.LeafHash(record), policy)
	return p.Index, c, by, err
}

// maxCached bounds the tiles in memory: 8 MB.
const maxCached = 1000

// tiles reads tiles for package tlog, which proves each of them, and keeps those read last.
func (f Fetch) tiles(ctx context.Context) proof.TileReader {
	l, cache := &logCheck{fetch: f}, map[tlog.Tile][]byte{}
	return func(t tlog.Tile) ([]byte, error) {
		if data, known := cache[t]; known {
			return data, nil
		}
		hashes, wrong, err := l.readHashes(ctx, t.L, t.N, t.W)
		if err == nil && wrong != "" {
			err = fmt.Errorf("%s: %s", proof.TilePath(t), wrong)
		}
		if err != nil {
			return nil, err
		}
		if len(cache) >= maxCached {
			clear(cache)
		}
		cache[t] = proof.JoinHashes(hashes)
		return cache[t], nil
	}
}
