package journal

import (
	"context"
	"math"
)

// reader has the blocks verified of which the server is about to read records for
// it: see [datadir.Server.Verified]. The zero reader has read nothing.
type reader struct{ through uint64 }

// asks is called before the server is asked for the record at seq and those behind it.
func (r *reader) asks(ctx context.Context, j *Journal, seq uint64) (err error) {
	if seq > r.through {
		r.through, err = j.conn.verified(ctx, seq, true)
	}
	return err
}

// asks is called before the server is asked for the record at seq alone.
func (j *Journal) asks(ctx context.Context, seq uint64) error {
	_, err := j.conn.verified(ctx, seq, false)
	return err
}

func (c *Conn) verified(ctx context.Context, seq uint64, ahead bool) (through uint64, err error) {
	if c.embedded == nil {
		return math.MaxUint64, nil
	}
	return c.embedded.Verified(ctx, seq, ahead)
}

// mended is how many pieces of files were mended, in all epochs of the server so far.
func (c *Conn) mended() uint64 {
	if c.embedded == nil {
		return 0
	}
	return c.embedded.Mended()
}

// nameMended names what was mended since the journal was opened, as a block turned
// out to be damaged. That ends the sessions of all sources, and each calls it as it
// begins another, before it may come to the gap. So the gap has one name, which says
// where the bytes are.
func (j *Journal) nameMended(ctx context.Context) error {
	n := j.conn.mended()
	if n == j.mended.Load() {
		return nil
	}
	if err := j.reportLosses(ctx); err != nil {
		return err
	}
	j.mended.Store(n)
	return nil
}
