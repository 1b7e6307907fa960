package audit

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/auditrelay/auditrelay/internal/retry"
)

// tilesPause is the wait for the tiles of a checkpoint, which are written after it.
const tilesPause = 50 * time.Millisecond

// proveConsistency proves the tree of the first old entries to begin o's tree (RFC 6962,
// section 2.1.2). The hashes come from the tiles, each proven with o's root: so the refusal of a
// proof by a witness is about the trees, and not about our reading. It waits for tiles that are not
// there yet, as long as ctx lets it.
func (t *Trail) proveConsistency(ctx context.Context, o *Offer, old int64) ([]tlog.Hash, error) {
	if old <= 0 || old >= o.Size {
		return nil, nil
	}
	if t.files == nil {
		return nil, errors.New("prove consistency: the trail has no tiles")
	}
	for {
		tiles := tlog.TileHashReader(tlog.Tree{N: o.Size, Hash: o.Root}, t.files.Tiles(o.Origin))
		proof, err := tlog.ProveTree(o.Size, old, tiles)
		if err == nil {
			return proof, nil
		}
		if retry.Sleep(ctx, tilesPause) != nil {
			return nil, fmt.Errorf("prove consistency of %d with %d entries: %w", o.Size, old, err)
		}
	}
}
