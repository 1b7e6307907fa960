package journal

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/nats-io/nats.go/jetstream"
)

// reportLosses puts into the quarantine what it does not name yet: what lies in
// the salvage folder, and positions that have no record though nothing let it
// go. It can be repeated at any time.
func (j *Journal) reportLosses(ctx context.Context) error {
	if j.conn.embedded != nil {
		j.conn.embedded.keepDescriptions()
	}
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
	if j.conn.embedded == nil {
		return nil
	}
	list := j.conn.JetStream.ListStreams(ctx)
	for info := range list.Info() {
		name := info.Config.Name
		if !info.Config.DenyDelete || !info.Config.DenyPurge || !strings.HasPrefix(name, j.cfg.StreamPrefix+"_") {
			continue
		}
		gaps, err := j.appendOnlyGaps(ctx, info)
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

func (j *Journal) appendOnlyGaps(ctx context.Context, info *jetstream.StreamInfo) (gaps []span, err error) {
	if first := max(info.Config.FirstSeq, 1); info.State.FirstSeq > first {
		gaps = append(gaps, span{first, info.State.FirstSeq - 1})
	}
	if info.State.NumDeleted == 0 {
		return gaps, nil
	}
	stream, err := j.conn.JetStream.Stream(ctx, info.Config.Name)
	if err != nil {
		return nil, fmt.Errorf("open stream %s: %w", info.Config.Name, err)
	}
	deleted, err := deletedIn(ctx, stream)
	return append(gaps, deleted...), err
}

func (j *Journal) reportGaps(ctx context.Context, stream string, gaps []span) error {
	if len(gaps) == 0 {
		return nil
	}
	known, err := j.Quarantine(ctx)
	if err != nil {
		return err
	}
	for _, gap := range uncovered(gaps, known, stream) {
		q := Quarantined{Stream: stream, From: gap.from, To: gap.to, Reason: "the stream has no record there: it was lost on disk"}
		if err := j.setAside(ctx, q, nil); err != nil {
			return err
		}
	}
	return nil
}

// total is how many positions they name.
func total(all []Quarantined) (n float64) {
	for _, q := range all {
		n += q.positions()
	}
	return n
}

// reportSalvage names what was taken out of the server's files.
func (j *Journal) reportSalvage(ctx context.Context, known []Quarantined) error {
	if j.conn.dataDir == "" {
		return nil
	}
	entries, err := os.ReadDir(filepath.Join(j.conn.dataDir, SalvageDir))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("list the salvage folder: %w", err)
	}
	for _, e := range entries {
		q, ok := salvageOf(e.Name())
		if !ok {
			q, ok = fileSalvageOf(e.Name())
		}
		named := slices.ContainsFunc(known, func(k Quarantined) bool { return k.Kept == q.Kept })
		if !ok || named || q.To < q.From {
			continue // told already, or nothing that was acknowledged
		}
		var data []byte
		if q.From > 0 {
			if data, err = os.ReadFile(filepath.Join(j.conn.dataDir, q.Kept)); err != nil {
				return fmt.Errorf("read salvaged bytes: %w", err)
			}
		}
		if err := j.setAside(ctx, q, data); err != nil {
			return err
		}
	}
	return nil
}

// fileSalvageOf reads a name that salvageName has made.
func fileSalvageOf(base string) (Quarantined, bool) {
	name, ok := strings.CutSuffix(base, ".file")
	parts := strings.Split(name, "-")
	if !ok || len(parts) < 3 {
		return Quarantined{}, false
	}
	n := len(parts) - 2
	return Quarantined{
		Stream: strings.Join(parts[:n], "-"), Kept: filepath.Join(SalvageDir, base),
		Reason: "the file of its " + parts[n] + " was damaged, and was replaced",
	}, true
}

// salvageOf reads the name of a file that takeOut has written.
func salvageOf(base string) (Quarantined, bool) {
	name, ok := strings.CutSuffix(base, ".bin")
	parts := strings.Split(name, "-")
	if !ok || len(parts) < 5 {
		return Quarantined{}, false
	}
	n := len(parts) - 4
	q := Quarantined{Stream: strings.Join(parts[:n], "-"), Kept: filepath.Join(SalvageDir, base)}
	var block, offset uint64
	_, err := fmt.Sscanf(strings.Join(parts[n:], " "), "%d %d %d %d", &q.From, &q.To, &block, &offset)
	q.Reason = fmt.Sprintf("damaged on disk, in block %d at offset %d", block, offset)
	return q, err == nil
}

// gaps are the positions of the events' stream that should have a record and
// have none.
func (j *Journal) gaps(ctx context.Context) ([]span, error) {
	info, err := j.stream.Info(ctx)
	if err != nil {
		return nil, fmt.Errorf("read the journal's state: %w", err)
	}
	var found []span
	if front := j.frontGap(ctx, info.State); front.from <= front.to {
		found = append(found, front)
	}
	if info.State.NumDeleted == 0 {
		return found, nil
	}
	// Nothing deletes single records of this stream, and trimming moves its
	// start: so each of these was lost.
	lost, err := deletedIn(ctx, j.stream)
	return append(found, lost...), err
}

// deletedIn gives the positions between a stream's ends that have no record.
func deletedIn(ctx context.Context, stream jetstream.Stream) ([]span, error) {
	info, err := stream.Info(ctx, jetstream.WithDeletedDetails(true))
	if err != nil {
		return nil, fmt.Errorf("read the state of stream %s: %w", stream.CachedInfo().Config.Name, err)
	}
	var found []span
	slices.Sort(info.State.Deleted)
	for _, seq := range info.State.Deleted {
		if n := len(found); n > 0 && found[n-1].to+1 == seq {
			found[n-1].to = seq
			continue
		}
		found = append(found, span{seq, seq})
	}
	// The server does not list those behind the last record.
	state := info.State
	if missing, listed := state.LastSeq+1-state.FirstSeq-state.Msgs, uint64(len(state.Deleted)); missing > listed {
		found = append(found, span{state.LastSeq + 1 - (missing - listed), state.LastSeq})
	}
	return found, nil
}

// frontGap is what is missing before the stream's first record: trimming never
// passes the sink that is farthest behind. Where not every position is known, it
// is nothing for now.
func (j *Journal) frontGap(ctx context.Context, state jetstream.StreamState) span {
	none := span{1, 0}
	positions, err := j.askPositions(ctx)
	if err != nil || len(positions) == 0 {
		return none
	}
	behind := slices.Min(slices.Collect(maps.Values(positions)))
	trimmed, _ := j.conn.marks.read(markTrimmed)
	from := max(behind, trimmed.value) + 1
	if from >= state.FirstSeq {
		return none
	}
	return span{from, state.FirstSeq - 1}
}

// uncovered is what of the gaps no entry of the quarantine names.
func uncovered(gaps []span, known []Quarantined, stream string) []span {
	var left []span
	for _, gap := range gaps {
		rest := []span{gap}
		for _, q := range known {
			if q.Stream == stream && q.Loss == "" { // else other records have those positions
				rest = without(rest, span{q.From, q.To})
			}
		}
		left = append(left, rest...)
	}
	return left
}

func without(spans []span, taken span) []span {
	var left []span
	for _, s := range spans {
		if taken.to < s.from || s.to < taken.from {
			left = append(left, s)
			continue
		}
		if s.from < taken.from {
			left = append(left, span{s.from, taken.from - 1})
		}
		if taken.to < s.to {
			left = append(left, span{taken.to + 1, s.to})
		}
	}
	return left
}

// checkPosition sets a sink's position right: before the first session as
// rightPosition says, and later to what this process has acknowledged.
func (s *Source) checkPosition(ctx context.Context) error {
	info, err := s.consumer.Info(ctx)
	if err != nil {
		return fmt.Errorf("read the position of %s: %w", s.name, err)
	}
	stream, err := s.j.stream.Info(ctx)
	if err != nil {
		return fmt.Errorf("read the journal's state: %w", err)
	}
	at := info.AckFloor.Stream
	right, cause := s.rightPosition(at, stream.State)
	if acked, started := s.acknowledged(); started {
		right, cause = acked, "it was beyond what the sink has acknowledged"
	}
	if right == at {
		return nil
	}
	if _, err := s.j.stream.ResetConsumerToSequence(ctx, s.name, right+1); err != nil {
		return fmt.Errorf("set the position of %s from %d to %d: %w", s.name, at, right, err)
	}
	if right > at {
		s.j.log.Info("a sink goes on where it was, which the server had not written yet",
			"consumer", s.name, "position", at, "set_to", right)
		return nil
	}
	s.j.log.Error("a sink's position was damaged and was set back; the sink may get duplicates",
		"consumer", s.name, "position", at, "set_to", right, "cause", cause)
	return nil
}

// rightPosition is where a sink's position should be that is at some record.
//
// It is set back where it cannot be right: beyond the newest record (the stream
// lost its end, and what is appended next would pass for acknowledged), or
// beyond what the sink has acknowledged (the server keeps no checksum of it).
// Being set back means duplicates; not being set back would mean loss.
//
// It is set forward to what the sink has acknowledged, as the server writes
// positions some times a second only. That must be sure: the mark is of this
// very stream, whose positions are given out once, and the stream reaches as far.
func (s *Source) rightPosition(at uint64, stream jetstream.StreamState) (right uint64, cause string) {
	mark, marked := s.j.conn.marks.read(s.name)
	marked = marked && s.j.conn.embedded != nil // elsewhere another relay may have gone on
	switch {
	case marked && max(mark.value, stream.FirstSeq-1) < at:
		return min(max(mark.value, stream.FirstSeq-1), stream.LastSeq), "it was beyond what the sink has acknowledged"
	case at > stream.LastSeq:
		return stream.LastSeq, "it was beyond the newest record"
	case marked && mark.stream == s.j.made && at < mark.value && mark.value <= stream.LastSeq:
		return mark.value, ""
	}
	return at, ""
}

// acknowledged is the newest record that this process has acknowledged; false
// before its first session.
func (s *Source) acknowledged() (seq uint64, started bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.acked, s.started
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
	for _, gap := range uncovered([]span{{from, to - 1}}, known, s.j.names.events) {
		q := Quarantined{Stream: s.j.names.events, From: gap.from, To: gap.to, Reason: "the server passed over it: it is damaged or lost on disk"}
		if err := s.j.setAside(ctx, q, nil); err != nil {
			return err
		}
	}
	return nil
}
