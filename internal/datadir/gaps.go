package datadir

import (
	"context"
	"fmt"
	"slices"

	"github.com/nats-io/nats.go/jetstream"
)

// Deleted lists the positions without a record between a stream's ends.
func Deleted(ctx context.Context, stream jetstream.Stream) ([]Span, error) {
	info, err := stream.Info(ctx, jetstream.WithDeletedDetails(true))
	if err != nil {
		return nil, fmt.Errorf("read the state of stream %s: %w", stream.CachedInfo().Config.Name, err)
	}
	var found []Span
	slices.Sort(info.State.Deleted)
	for _, seq := range info.State.Deleted {
		if n := len(found); n > 0 && found[n-1].To+1 == seq {
			found[n-1].To = seq
			continue
		}
		found = append(found, Span{From: seq, To: seq})
	}
	// The server does not list positions behind the last record.
	state := info.State
	if missing, listed := state.LastSeq+1-state.FirstSeq-state.Msgs, uint64(len(state.Deleted)); missing > listed {
		found = append(found, Span{From: state.LastSeq + 1 - (missing - listed), To: state.LastSeq})
	}
	return found, nil
}

// AppendOnlyGaps lists the positions without a record in a stream without deletions.
func AppendOnlyGaps(ctx context.Context, js jetstream.JetStream, info *jetstream.StreamInfo) (gaps []Span, err error) {
	if first := max(info.Config.FirstSeq, 1); info.State.FirstSeq > first {
		gaps = append(gaps, Span{From: first, To: info.State.FirstSeq - 1})
	}
	if info.State.NumDeleted == 0 {
		return gaps, nil
	}
	stream, err := js.Stream(ctx, info.Config.Name)
	if err != nil {
		return nil, fmt.Errorf("open stream %s: %w", info.Config.Name, err)
	}
	deleted, err := Deleted(ctx, stream)
	return append(gaps, deleted...), err
}
