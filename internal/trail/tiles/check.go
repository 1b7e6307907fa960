package tiles

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/auditrelay/auditrelay/internal/retry"
	"github.com/auditrelay/auditrelay/internal/trail/proof"
)

// Check reads every file of the log, and recomputes all of the tree from the entries.
// errDamaged names the first file lost or unlike the tree signed by its newest
// checkpoint. Of archived entries it takes the hashes from the tiles. It rests after each
// bundle for rest.
func (l Log) Check(ctx context.Context, publicKey string, rest time.Duration) error {
	c, err := l.signed(publicKey)
	if err != nil {
		return err
	}
	if err := l.checkHistory(publicKey); err != nil {
		return err
	}
	return walk(c, func(n int64, width int) ([]tlog.Hash, error) {
		if err := retry.Sleep(ctx, rest); err != nil {
			return nil, err
		}
		return l.checkBundle(n, width)
	}, l.checkTile)
}

// walk computes the tree of a checkpoint from the hashes of its leaves, which it takes bundle
// by bundle, and calls visit with each tile of the tree. errDamaged: they do not give the root.
func walk(c proof.Checkpoint, bundle func(n int64, width int) ([]tlog.Hash, error), visit func(t tlog.Tile, hashes []tlog.Hash) error) error {
	var err error
	take := func(t tlog.Tile, hashes []tlog.Hash) {
		if err == nil {
			err = visit(t, hashes)
		}
	}
	e := &edge{}
	for e.Len() < c.Size && err == nil {
		leaves, failed := bundle(e.Len()/proof.TileWidth, int(min(c.Size-e.Len(), proof.TileWidth)))
		if failed != nil {
			return failed
		}
		for _, leaf := range leaves {
			e.grow(leaf, take)
		}
	}
	if err != nil {
		return err
	}
	for _, t := range edgeTiles(c.Size) {
		take(t, e.levels[t.L])
	}
	if err == nil && e.Root() != c.Root {
		err = fmt.Errorf("%w: the entry bundles do not give the signed root", errDamaged)
	}
	return err
}

func (l Log) checkTile(t tlog.Tile, hashes []tlog.Hash) error {
	data, err := l.Tile(t)
	if err != nil {
		return fmt.Errorf("%w: %w", errDamaged, err)
	}
	if !bytes.Equal(data, joined(hashes)) {
		return fmt.Errorf("%w: %s does not fit its entry bundles", errDamaged, pathOf(t))
	}
	return nil
}

// checkBundle gives the leaf hashes of a bundle.
func (l Log) checkBundle(n int64, width int) ([]tlog.Hash, error) {
	data, err := l.Bundle(n, width)
	if errors.Is(err, ErrArchived) {
		return l.archivedLeaves(n, width)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errDamaged, err)
	}
	name := proof.BundlePath(n, width)
	if info, err := os.Stat(l.path(name)); err == nil && info.Size() != int64(len(data)) {
		return nil, fmt.Errorf("%w: %s has %d bytes after its %d entries", errDamaged, name, info.Size()-int64(len(data)), width)
	}
	return l.leaves(data, func(proof.Digest, []byte) error { return nil })
}

// leaves gives the leaf hashes of a bundle of the log, and has its long records visited.
// errDamaged: it is torn, or lacks a record.
func (l Log) leaves(bundle []byte, visit func(d proof.Digest, record []byte) error) (leaves []tlog.Hash, err error) {
	for leaf, err := range proof.Bundle(bundle) {
		if err != nil {
			return nil, fmt.Errorf("%w: %w", errDamaged, err)
		}
		leaves = append(leaves, tlog.RecordHash(leaf))
		d, long := proof.ParseDigest(leaf)
		if !long {
			continue
		}
		record, err := l.Record(d)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", errDamaged, err)
		}
		if err := visit(d, record); err != nil {
			return nil, err
		}
	}
	return leaves, nil
}

// archivedLeaves gives the leaf hashes of an archived bundle, as the tile has them.
func (l Log) archivedLeaves(n int64, width int) ([]tlog.Hash, error) {
	data, err := l.Tile(tile(0, n, width))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errDamaged, err)
	}
	return hashesOf(data, width), nil
}
