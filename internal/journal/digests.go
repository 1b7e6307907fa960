package journal

import (
	"context"

	"github.com/auditrelay/auditrelay/internal/datadir"
	"github.com/auditrelay/auditrelay/internal/record"
)

// Sealed is a durable record, as its commit knows it.
type Sealed struct {
	Position uint64
	// Turns is how often the stream had gone back before the record was published: a
	// later turn may have given its position to another record.
	Turns int
	record.Digest
}

// seal describes the record while the server syncs it. Without anybody to tell, it does
// nothing.
func (c *committer) seal(s *sent) Sealed {
	if c.sealed == nil {
		return Sealed{}
	}
	segments := make([]record.Segment, len(s.group))
	for i, segment := range s.group {
		segments[i] = record.Segment{Data: segment.data, Events: segment.events}
	}
	return Sealed{Digest: record.DigestMade(s.msg.Data, segments)}
}

// Turns counts how often the stream went back.
func (j *Journal) Turns() int {
	turns, _ := j.Losses.History.Turns(0)
	return turns
}

// Trimmed is the newest position trimmed on purpose.
func (j *Journal) Trimmed() uint64 {
	trimmed, _ := j.conn.Watermarks.Read(datadir.Trimmed)
	return trimmed.Value
}

// Ends are the positions of the oldest and the newest record, by the stream's leader.
func (j *Journal) Ends(ctx context.Context) (first, last uint64, err error) {
	info, err := j.info(ctx)
	if err != nil {
		return 0, 0, err
	}
	return info.State.FirstSeq, info.State.LastSeq, nil
}

// Records calls visit with each stored record in [from, end), in order, until visit
// returns false. It passes over positions without a record. The data may be damaged.
func (j *Journal) Records(ctx context.Context, from, end uint64, visit func(position uint64, data []byte) bool) error {
	s := &Span{j: j, next: max(from, 1), end: end}
	for s.next < s.end {
		msg, err := s.read(ctx)
		if err != nil {
			return err
		}
		if msg == nil || msg.Sequence >= end || !visit(msg.Sequence, msg.Data) {
			return nil
		}
		s.next = msg.Sequence + 1
	}
	return nil
}
