package losses

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/auditrelay/auditrelay/internal/datadir"
)

// Report names the losses missing from the quarantine: the salvage folder's files, the
// gaps of the events' stream, and those of the trail. It can be repeated at any time.
func (l *Ledger) Report(ctx context.Context, gaps []datadir.Span) error {
	l.reporting.Lock()
	defer l.reporting.Unlock()
	l.conn.KeepDescriptions()
	known, err := l.All(ctx)
	if err != nil {
		return err
	}
	l.metrics.lost.Set(total(known)) // each further name adds to it
	if err := l.reportSalvage(ctx, known); err != nil {
		return err
	}
	if err := l.nameGaps(ctx, l.layout.Events, gaps, lostOnDisk); err != nil {
		return err
	}
	return l.reportAppendOnly(ctx)
}

const (
	lostOnDisk = "the stream has no record there: it was lost on disk"
	passedOver = "the server passed over it: it is damaged or lost on disk"
)

// NamePassed names the positions in [from, to), except known ones. The server gave none of
// them to a sink: it silently passes over lost records, and over those with a wrong
// checksum.
func (l *Ledger) NamePassed(ctx context.Context, from, to uint64) error {
	if from >= to {
		return nil
	}
	return l.nameGaps(ctx, l.layout.Events, []datadir.Span{{From: from, To: to - 1}}, passedOver)
}

func (l *Ledger) nameGaps(ctx context.Context, stream string, gaps []datadir.Span, reason string) error {
	if len(gaps) == 0 {
		return nil
	}
	known, err := l.All(ctx)
	if err != nil {
		return err
	}
	for _, gap := range datadir.Uncovered(gaps, known, stream) {
		q := datadir.Quarantined{Stream: stream, From: gap.From, To: gap.To, Reason: reason}
		if err := l.Name(ctx, q, nil); err != nil {
			return err
		}
	}
	return nil
}

// reportAppendOnly names the gaps of the append-only streams: the trail and its
// checkpoints. An external cluster may refuse to list all streams; there the trail itself
// names its gaps.
func (l *Ledger) reportAppendOnly(ctx context.Context) error {
	if !l.conn.Embedded() {
		return nil
	}
	list := l.conn.JetStream.ListStreams(ctx)
	for info := range list.Info() {
		name := info.Config.Name
		if !info.Config.DenyDelete || !info.Config.DenyPurge || !strings.HasPrefix(name, l.prefix+"_") {
			continue
		}
		gaps, err := datadir.AppendOnlyGaps(ctx, l.conn.JetStream, info)
		if err != nil {
			return err
		}
		if err := l.nameGaps(ctx, name, gaps, lostOnDisk); err != nil {
			return err
		}
	}
	if err := list.Err(); err != nil && !errors.Is(err, jetstream.ErrEndOfData) {
		return fmt.Errorf("list the streams: %w", err)
	}
	return nil
}

// total is the number of their positions.
func total(all []datadir.Quarantined) (n float64) {
	for _, q := range all {
		n += float64(q.Positions())
	}
	return n
}

// reportSalvage names the bytes taken out of the embedded server's files.
func (l *Ledger) reportSalvage(ctx context.Context, known []datadir.Quarantined) error {
	if !l.conn.Embedded() {
		return nil
	}
	salvaged, err := datadir.Salvaged(l.conn.DataDir)
	if err != nil {
		return err
	}
	for _, q := range salvaged {
		if slices.ContainsFunc(known, func(k datadir.Quarantined) bool { return k.Kept == q.Kept }) {
			continue
		}
		var data []byte
		if q.From > 0 {
			if data, err = os.ReadFile(filepath.Join(l.conn.DataDir, q.Kept)); err != nil {
				return fmt.Errorf("read salvaged bytes: %w", err)
			}
		}
		if err := l.Name(ctx, q, data); err != nil {
			return err
		}
	}
	return nil
}
