package verify

import (
	"cmp"
	"context"
	"runtime"
	"slices"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/auditrelay/auditrelay/internal/retry"
	"github.com/auditrelay/auditrelay/internal/store/durable"
	"github.com/auditrelay/auditrelay/internal/trail/proof"
)

// batch is how many chunks are read before their results are taken in order.
const batch = 64

// scanned is the tree as the files say.
type scanned struct {
	size int64
	// bundles and tiles are the hashes of the full chunks; zero where not known.
	bundles, tiles []tlog.Hash
	last           *chunk      // the partial one at the end; nil for none
	sizes          []int64     // of trees to know the root of, ascending
	tails          []tlog.Hash // of these, within their last chunk; zero for none, or not known
	records        []proof.Finding
}

// scan reads all entries and their hashes once, in parallel. Its memory does not depend on
// the number of entries, except for 64 bytes a chunk.
func (l *logCheck) scan(ctx context.Context, size int64, sizes []int64) (*scanned, error) {
	s := &scanned{
		size: size, bundles: make([]tlog.Hash, size/width), tiles: make([]tlog.Hash, size/width),
		sizes: sizes, tails: make([]tlog.Hash, len(sizes)),
	}
	chunks := (size + width - 1) / width
	for from := int64(0); from < chunks; from += batch {
		results := make([]*chunk, min(batch, chunks-from))
		err := l.o.parallel(ctx, len(results), func(i int) (err error) {
			if results[i], err = l.readChunk(ctx, from+int64(i), size); err == nil {
				s.hash(results[i])
				err = retry.Sleep(ctx, l.o.Rest)
			}
			return err
		})
		if err != nil {
			return nil, err
		}
		for _, c := range results {
			s.records = append(s.records, c.records...)
			if c.width < width {
				s.last = c
			}
			if c.bundle == nil {
				l.complete.skip(l.base+c.n*width, l.base+c.n*width+int64(c.width)-1)
			}
			for _, f := range c.facts {
				l.complete.take(f)
			}
			if c.beyond != nil {
				l.report.Completeness.add(*c.beyond)
			}
		}
		if l.o.Progress != nil {
			l.o.Progress(l.base+min((from+batch)*width, size), l.base+size)
		}
	}
	return s, nil
}

// hash computes the chunk's hashes. Each chunk writes to places of its own.
func (s *scanned) hash(c *chunk) {
	if c.bundle != nil && !slices.Contains(c.bundle, tlog.Hash{}) {
		root := s.setTails(c.n, c.bundle)
		if c.width == width {
			s.bundles[c.n] = root
		}
	}
	if c.width < width || c.tile == nil {
		return
	}
	if s.tiles[c.n] = s.bundles[c.n]; !c.agree() {
		s.tiles[c.n] = treeOf(c.tile)
	}
}

// within gives the places of the sizes within the n-th chunk.
func (s *scanned) within(n int64) (from, to int) {
	from, _ = slices.BinarySearch(s.sizes, n*width+1)
	to, _ = slices.BinarySearch(s.sizes, (n+1)*width)
	return from, to
}

// setTails computes the tails in the n-th chunk, and gives the root over all of its leaves.
func (s *scanned) setTails(n int64, leaves []tlog.Hash) tlog.Hash {
	var e proof.Edge
	from, to := s.within(n)
	for i := from; i < to; i++ {
		for _, leaf := range leaves[e.Len() : s.sizes[i]-n*width] {
			e.Add(leaf)
		}
		s.tails[i] = e.Root()
	}
	return e.With(leaves[e.Len():]...).Root()
}

func (s *scanned) clearTails(n int64) {
	from, to := s.within(n)
	clear(s.tails[from:to])
}

// parallel calls do for 0 to n-1, and returns the first error.
func (o *Options) parallel(ctx context.Context, n int, do func(i int) error) error {
	return durable.Workers(cmp.Or(o.Workers, runtime.GOMAXPROCS(0)), n, func(i int) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		return do(i)
	})
}
