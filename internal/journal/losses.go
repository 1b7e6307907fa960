package journal

import (
	"context"
	"maps"
	"slices"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/auditrelay/auditrelay/internal/datadir"
)

// reportLosses names every lost position: behind the end of a stream gone back, in damaged
// files, and in gaps. It can be repeated at any time.
func (j *Journal) reportLosses(ctx context.Context) error {
	if err := j.Losses.Compare(ctx); err != nil {
		return err
	}
	gaps, err := j.gaps(ctx)
	if err != nil {
		return err
	}
	return j.Losses.Report(ctx, gaps)
}

// gaps are the missing positions of the events' stream.
func (j *Journal) gaps(ctx context.Context) ([]datadir.Span, error) {
	info, err := j.info(ctx)
	if err != nil {
		return nil, err
	}
	var found []datadir.Span
	if front := j.frontGap(ctx, info.State); front.From <= front.To {
		found = append(found, front)
	}
	if info.State.NumDeleted == 0 {
		return found, nil
	}
	// Nothing deletes single records of this stream, and trimming moves its start: each
	// of these was lost.
	lost, err := datadir.Deleted(ctx, j.stream)
	return append(found, lost...), err
}

// frontGap is the gap before the stream's first record: trimming never passes the sink
// farthest behind. It is empty for now if some position is unknown.
func (j *Journal) frontGap(ctx context.Context, state jetstream.StreamState) datadir.Span {
	none := datadir.Span{From: 1, To: 0}
	positions, err := j.Positions.Ask(ctx) // after the state: another relay may trim meanwhile
	if err != nil || len(positions) == 0 {
		return none
	}
	behind := slices.Min(slices.Collect(maps.Values(positions)))
	trimmed, _ := j.conn.Watermarks.Read(datadir.Trimmed)
	from := max(behind, trimmed.Value) + 1
	if from >= state.FirstSeq {
		return none
	}
	return datadir.Span{From: from, To: state.FirstSeq - 1}
}

// nameMended names the mended pieces since Open. A damaged block ends the sessions of all
// sources, and each source calls nameMended before its next one, so before it meets the
// gap. So the gap gets one name, with the place of its bytes.
func (j *Journal) nameMended(ctx context.Context) error {
	n := j.conn.Mendings()
	if n == j.mended.Load() {
		return nil
	}
	if err := j.reportLosses(ctx); err != nil {
		return err
	}
	j.mended.Store(n)
	return nil
}
