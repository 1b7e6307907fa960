package journal

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/auditrelay/auditrelay/internal/datadir"
)

// reportLosses puts into the quarantine what it does not name yet: what lies in
// the salvage folder, and positions that have no record though nothing let it
// go. It can be repeated at any time.
func (j *Journal) reportLosses(ctx context.Context) error {
	j.reporting.Lock()
	defer j.reporting.Unlock()
	j.conn.KeepDescriptions()
	if err := j.comparePast(ctx); err != nil {
		return err
	}
	known, err := j.Quarantine(ctx)
	if err != nil {
		return err
	}
	j.metrics.lost.Set(total(known)) // what follows adds to it
	if err := j.reportSalvage(ctx, known); err != nil {
		return err
	}
	gaps, err := j.gaps(ctx)
	if err != nil {
		return err
	}
	if err := j.reportGaps(ctx, j.names.events, gaps); err != nil {
		return err
	}
	return j.reportAppendOnly(ctx)
}

// reportAppendOnly does the same for the streams that let nothing go: the trail
// and its checkpoints. On an external cluster, which may not let itself be asked for
// all streams, the trail alone names what is missing there.
func (j *Journal) reportAppendOnly(ctx context.Context) error {
	if !j.conn.Embedded() {
		return nil
	}
	list := j.conn.JetStream.ListStreams(ctx)
	for info := range list.Info() {
		name := info.Config.Name
		if !info.Config.DenyDelete || !info.Config.DenyPurge || !strings.HasPrefix(name, j.cfg.StreamPrefix+"_") {
			continue
		}
		gaps, err := datadir.AppendOnlyGaps(ctx, j.conn.JetStream, info)
		if err != nil {
			return err
		}
		if err := j.reportGaps(ctx, name, gaps); err != nil {
			return err
		}
	}
	if err := list.Err(); err != nil && !errors.Is(err, jetstream.ErrEndOfData) {
		return fmt.Errorf("list the streams: %w", err)
	}
	return nil
}

func (j *Journal) reportGaps(ctx context.Context, stream string, gaps []datadir.Span) error {
	if len(gaps) == 0 {
		return nil
	}
	known, err := j.Quarantine(ctx)
	if err != nil {
		return err
	}
	for _, gap := range datadir.Uncovered(gaps, known, stream) {
		q := datadir.Quarantined{Stream: stream, From: gap.From, To: gap.To, Reason: "the stream has no record there: it was lost on disk"}
		if err := j.setAside(ctx, q, nil); err != nil {
			return err
		}
	}
	return nil
}

// total is how many positions they name.
func total(all []datadir.Quarantined) (n float64) {
	for _, q := range all {
		n += float64(q.Positions())
	}
	return n
}

// reportSalvage names what was taken out of the server's files.
func (j *Journal) reportSalvage(ctx context.Context, known []datadir.Quarantined) error {
	if j.conn.DataDir == "" {
		return nil
	}
	salvaged, err := datadir.Salvaged(j.conn.DataDir)
	if err != nil {
		return err
	}
	for _, q := range salvaged {
		if slices.ContainsFunc(known, func(k datadir.Quarantined) bool { return k.Kept == q.Kept }) {
			continue
		}
		var data []byte
		if q.From > 0 {
			if data, err = os.ReadFile(filepath.Join(j.conn.DataDir, q.Kept)); err != nil {
				return fmt.Errorf("read salvaged bytes: %w", err)
			}
		}
		if err := j.setAside(ctx, q, data); err != nil {
			return err
		}
	}
	return nil
}

// gaps are the positions of the events' stream that should have a record and
// have none.
func (j *Journal) gaps(ctx context.Context) ([]datadir.Span, error) {
	info, err := j.stream.Info(ctx)
	if err != nil {
		return nil, fmt.Errorf("read the journal's state: %w", err)
	}
	var found []datadir.Span
	if front := j.frontGap(ctx, info.State); front.From <= front.To {
		found = append(found, front)
	}
	if info.State.NumDeleted == 0 {
		return found, nil
	}
	// Nothing deletes single records of this stream, and trimming moves its
	// start: so each of these was lost.
	lost, err := datadir.Deleted(ctx, j.stream)
	return append(found, lost...), err
}

// frontGap is what is missing before the stream's first record: trimming never
// passes the sink that is farthest behind. Where not every position is known, it
// is nothing for now.
func (j *Journal) frontGap(ctx context.Context, state jetstream.StreamState) datadir.Span {
	none := datadir.Span{From: 1, To: 0}
	positions, err := j.askPositions(ctx)
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

// nameSkipped puts the positions in [from, to) into the quarantine, but for
// those that stand there. The server gave none of them to the sink: it passes
// in silence over records whose checksum fails, and over those it has lost.
func (s *Source) nameSkipped(ctx context.Context, from, to uint64) error {
	if from >= to {
		return nil
	}
	known, err := s.j.Quarantine(ctx)
	if err != nil {
		return err
	}
	for _, gap := range datadir.Uncovered([]datadir.Span{{From: from, To: to - 1}}, known, s.j.names.events) {
		q := datadir.Quarantined{Stream: s.j.names.events, From: gap.From, To: gap.To, Reason: "the server passed over it: it is damaged or lost on disk"}
		if err := s.j.setAside(ctx, q, nil); err != nil {
			return err
		}
	}
	return nil
}
