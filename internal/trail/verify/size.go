package verify

import (
	"context"
	"fmt"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/auditrelay/auditrelay/internal/trail/proof"
)

const (
	// largestTree bounds the memory, to 1 GB (see scan).
	largestTree = 1 << 32
	// In a tree above the size probedTree, the top tile is looked for first. Below it, all
	// files of a forged size are looked for within a second.
	probedTree = 1 << 24
)

// plausible is the newest checkpoint whose tree can be there. A number is signed in no time, so
// a size alone must not cost memory, or a look for billions of files. The entries given up
// are named.
func (l *logCheck) plausible(ctx context.Context, newest signed) (signed, error) {
	for newest.size > probedTree {
		kind, detail := Unproven, fmt.Sprintf("a checkpoint covers them, and this version verifies %d entries at most", int64(largestTree))
		if newest.size <= largestTree {
			top := topTile(newest.size)
			_, wrong, err := l.readHashes(ctx, top.L, top.N, top.W)
			if err != nil || wrong == "" {
				return newest, err
			}
			kind, detail = Missing, fmt.Sprintf("a checkpoint covers them, and the top of its tree is not there: %s: %s", proof.TilePath(top), wrong)
		}
		older := l.below(newest.size)
		l.entryFinding(kind, older.size, newest.size-1, "", detail)
		newest = older
	}
	return newest, nil
}

// topTile is the one tile on the highest level of a tree with a full tile below it.
func topTile(size int64) tlog.Tile {
	level := 0
	for size>>(proof.TileHeight*(level+1)) > 0 {
		level++
	}
	return tlog.Tile{L: level, W: int(size >> (proof.TileHeight * level))}
}

// below is the history's largest tree smaller than size.
func (l *logCheck) below(size int64) (found signed) {
	for _, s := range l.history {
		if s.size < size && s.size > found.size {
			found = s
		}
	}
	return found
}
