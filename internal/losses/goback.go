package losses

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sort"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/auditrelay/auditrelay/internal/datadir"
	"github.com/auditrelay/auditrelay/internal/streamserver"
)

// stays is the newest known position with its own record. All earlier ones have theirs
// too, so it searches by halves.
func (l *Ledger) stays(ctx context.Context, state jetstream.StreamState) (uint64, error) {
	suspect, _ := l.History.Suspect()
	known := l.History.Places(min(suspect.Seq, state.LastSeq))
	var failed error
	n := sort.Search(len(known), func(i int) bool {
		if failed != nil {
			return true
		}
		is, err := l.lookAt(ctx, state, known[i])
		failed = err
		return is == replaced || is == gone && known[i].Seq >= state.FirstSeq
	})
	if failed != nil {
		return 0, failed
	}
	stays := max(state.FirstSeq, 1) - 1
	if n > 0 {
		stays = max(stays, known[n-1].Seq)
	}
	return stays, nil
}

// goBack sets sinks and notes back to the remaining end.
func (l *Ledger) goBack(ctx context.Context, info *jetstream.StreamInfo) error {
	stays, err := l.stays(ctx, info.State)
	if err != nil {
		return err
	}
	// First: no source may acknowledge records whose positions are others' now.
	l.History.Turn(stays)
	if err := l.conn.JetStream.Conn().FlushTimeout(streamserver.PublishTimeout); err != nil {
		return fmt.Errorf("set the sinks back: %w", err)
	}
	if err := l.setBack(ctx, stays); err != nil {
		return err
	}
	if err := l.nameLostEnd(ctx, stays, info.State.LastSeq); err != nil {
		return err
	}
	l.conn.Watermarks.Lower(datadir.Trimmed, datadir.Watermark{Value: stays})
	l.conn.Watermarks.Lower(datadir.Acknowledged, datadir.Watermark{Value: stays, Stream: l.made})
	return l.History.Reset(stays, info.State.LastSeq)
}

// nameLostEnd names the acknowledged positions behind the remaining end.
func (l *Ledger) nameLostEnd(ctx context.Context, stays, end uint64) error {
	acknowledged, _ := l.conn.Watermarks.Read(datadir.Acknowledged)
	l.log.Error("the journal's stream went back: its servers lost confirmed records, and give their positions to others; every sink goes on behind the remaining records, and may get duplicates",
		"stream", l.layout.Events, "stayed", stays, "acknowledged", acknowledged.Value, "newest", end)
	if acknowledged.Value <= stays {
		return nil
	}
	suspect, _ := l.History.Suspect()
	return l.Name(ctx, datadir.Quarantined{
		Stream: l.layout.Events, From: stays + 1, To: acknowledged.Value, Loss: fmt.Sprintf("%016x", suspect.Sum),
		Reason: "the servers lost the end of the stream, and give its positions to other records",
	}, nil)
}

// setBack sets every sink beyond a position back to it, also those without a reader.
func (l *Ledger) setBack(ctx context.Context, to uint64) error {
	names := l.stream.ConsumerNames(ctx)
	for name := range names.Name() {
		if !strings.HasPrefix(name, streamserver.SinkConsumers) {
			continue
		}
		consumer, err := l.stream.Consumer(ctx, name)
		if err != nil {
			return fmt.Errorf("read the position of %s: %w", name, err)
		}
		if at := consumer.CachedInfo().AckFloor.Stream; at > to {
			if _, err := l.stream.ResetConsumerToSequence(ctx, name, to+1); err != nil {
				return fmt.Errorf("set the position of %s from %d to %d: %w", name, at, to, err)
			}
		}
		l.conn.Watermarks.Lower(name, datadir.Watermark{Value: to, Stream: l.made})
	}
	if err := names.Err(); err != nil && !errors.Is(err, jetstream.ErrEndOfData) {
		return fmt.Errorf("list the sinks' positions: %w", err)
	}
	return nil
}

// nameReplaced names the undelivered positions of an earlier stream: somebody took it
// away, or the servers came back without it. The watermarks go last, so a crash before
// leaves the same finding.
func (l *Ledger) nameReplaced(ctx context.Context) error {
	acknowledged, known := l.conn.Watermarks.Read(datadir.Acknowledged)
	if !known || l.conn.Embedded() || acknowledged.Stream == l.made {
		return nil
	}
	info, err := l.info(ctx)
	if err != nil {
		return err
	}
	had := l.conn.Watermarks.Lowest(streamserver.SinkConsumers, acknowledged.Stream)
	level := slog.LevelError
	if had >= acknowledged.Value {
		level = slog.LevelWarn // nothing is missing, as after a move to another cluster
	}
	l.log.Log(ctx, level, "the journal's stream is another than before: it was taken away and made anew, or journal.url leads elsewhere",
		"stream", l.layout.Events, "made", info.Created, "before", time.Unix(0, acknowledged.Stream).UTC(),
		"acknowledged", acknowledged.Value, "had_by_every_sink", had)
	if had < acknowledged.Value {
		err = l.Name(ctx, datadir.Quarantined{
			Stream: l.layout.Events, From: had + 1, To: acknowledged.Value, Loss: fmt.Sprintf("%016x", acknowledged.Stream),
			Reason: "the stream that held them is gone, and another has its name",
		}, nil)
		if err != nil {
			return err
		}
	}
	if err := l.History.Reset(0, info.State.LastSeq); err != nil {
		return err
	}
	return errors.Join(l.conn.Watermarks.Forget(datadir.Trimmed), l.conn.Watermarks.Forget(datadir.Acknowledged))
}
