package tiles

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/auditrelay/auditrelay/internal/pause"
	"github.com/auditrelay/auditrelay/internal/proof"
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
	e := &edge{}
	check := func(t tlog.Tile, hashes []tlog.Hash) {
		if err == nil {
			err = l.checkTile(t, hashes)
		}
	}
	for e.Len() < c.Size {
		width := int(min(c.Size-e.Len(), proof.TileWidth))
		if err := l.checkBundle(e.Len()/proof.TileWidth, width, func(leaf tlog.Hash) { e.grow(leaf, check) }); err != nil {
			return err
		}
		if err != nil {
			return err
		}
		if err := pause.For(ctx, rest); err != nil {
			return err
		}
	}
	for _, t := range edgeTiles(c.Size) {
		check(t, e.levels[t.L])
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

// checkBundle gives the leaf hashes of a bundle to grow.
func (l Log) checkBundle(n int64, width int, grow func(leaf tlog.Hash)) error {
	data, err := l.Bundle(n, width)
	if errors.Is(err, ErrArchived) {
		return l.checkArchived(n, width, grow)
	}
	if err != nil {
		return fmt.Errorf("%w: %w", errDamaged, err)
	}
	name := proof.BundlePath(n, width)
	if info, err := os.Stat(l.path(name)); err == nil && info.Size() != int64(len(data)) {
		return fmt.Errorf("%w: %s has %d bytes after its %d entries", errDamaged, name, info.Size()-int64(len(data)), width)
	}
	for leaf, err := range proof.Bundle(data) {
		if err != nil {
			return fmt.Errorf("%w: %w", errDamaged, err)
		}
		if d, long := proof.ParseDigest(leaf); long {
			if _, err := l.Record(d); err != nil {
				return fmt.Errorf("%w: %w", errDamaged, err)
			}
		}
		grow(tlog.RecordHash(leaf))
	}
	return nil
}

// checkArchived gives the leaf hashes of an archived bundle, as the tile has them.
func (l Log) checkArchived(n int64, width int, grow func(leaf tlog.Hash)) error {
	data, err := l.Tile(tile(0, n, width))
	if err != nil {
		return fmt.Errorf("%w: %w", errDamaged, err)
	}
	for _, leaf := range hashesOf(data, width) {
		grow(leaf)
	}
	return nil
}
