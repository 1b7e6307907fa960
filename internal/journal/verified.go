package journal

import "context"

// reader has blocks verified before the server reads records in them: see
// [datadir.Server.Verified]. The zero reader has read nothing.
type reader struct{ through uint64 }

// asks comes before a request for the record at seq and those behind it.
func (r *reader) asks(ctx context.Context, j *Journal, seq uint64) (err error) {
	if seq > r.through {
		r.through, err = j.conn.Verified(ctx, seq, true)
	}
	return err
}

// asks comes before a request for the record at seq alone.
func (j *Journal) asks(ctx context.Context, seq uint64) error {
	_, err := j.conn.Verified(ctx, seq, false)
	return err
}
