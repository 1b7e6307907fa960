package datadir

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/auditrelay/auditrelay/internal/datadir/blockfile"
	"github.com/auditrelay/auditrelay/internal/datadir/natsserver"
)

// Verification is the result of [Dir.Verify].
type Verification struct {
	Records  uint64    `json:"records"`
	Events   uint64    `json:"events"`
	Bytes    uint64    `json:"bytes"`
	Problems []Problem `json:"problems"`
}

// Open counts the unsettled problems.
func (v *Verification) Open() int {
	n := 0
	for _, p := range v.Problems {
		if !p.Settled {
			n++
		}
	}
	return n
}

// Problem is a faulty run of positions, or a faulty file.
type Problem struct {
	Stream string `json:"stream"`
	File   string `json:"file,omitempty"` // relative to the data directory
	Offset int    `json:"offset,omitempty"`
	Bytes  int    `json:"bytes,omitempty"`
	From   uint64 `json:"from,omitempty"`
	To     uint64 `json:"to,omitempty"`
	What   string `json:"what"`
	Advice string `json:"advice"`
	// Settled means the quarantine names it already, and nothing is left to do.
	Settled bool `json:"settled"`
}

const (
	adviceRepair = "run 'auditrelay journal repair', or start the relay, which does the same"
	adviceNone   = "nothing is left to do: the quarantine names it"
)

// Verify reads every record of every stream and checks the server's checksums. It decodes
// the events and the dead letters. It looks for positions without a record in streams
// without deletions, and for impossible positions of sinks. It changes nothing, and no
// server opens the files. progress may be nil.
func (d *Dir) Verify(ctx context.Context, progress func(done, total int64)) (*Verification, error) {
	v := &Verification{Problems: []Problem{}}
	names, err := d.streams()
	if err != nil {
		return nil, err
	}
	m := d.meter(names, progress)
	var named []Quarantined
	if _, err := d.walk(ctx, d.layout.Quarantine, m, func(f *blockfile.Frame) {
		if q, names := quarantinedIn(f); names {
			named = append(named, q)
		}
	}); err != nil {
		return nil, err
	}
	for _, stream := range names {
		if err := d.verifyStream(ctx, stream, m, v, named); err != nil {
			return nil, err
		}
	}
	d.verifyGone(names, v)
	return v, d.verifyPositions(v)
}

// verifyStream lists the mendings and reports of a start.
func (d *Dir) verifyStream(ctx context.Context, stream string, m *meter, v *Verification, named []Quarantined) error {
	mendings, _, err := d.mendStream(stream, true)
	if errors.Is(err, blockfile.ErrForm) {
		v.Problems = append(v.Problems, Problem{
			Stream: stream, File: d.relative(d.streamDir(stream)), From: 1, What: err.Error(), Advice: adviceUnknown,
		})
		return nil
	}
	if err != nil && !slices.Contains(d.layout.journal(), stream) {
		v.Problems = append(v.Problems, Problem{
			Stream: stream, File: d.relative(d.streamDir(stream)), From: 1, What: err.Error(),
			Advice: adviceRepair + "; its folder is moved to the salvage folder, and the stream begins anew",
		})
		return nil
	}
	if err != nil {
		return err
	}
	for _, m := range mendings {
		v.Problems = append(v.Problems, Problem{
			Stream: m.Stream, File: m.File, Offset: m.Offset, Bytes: m.Bytes, From: m.From, To: m.To,
			What: m.Problem, Advice: adviceRepair,
		})
	}
	if stream == d.layout.Quarantine {
		return nil // read before
	}
	return d.verifyRecords(ctx, stream, m, v, named)
}

// verifyGone names the streams with only a note of their end left.
func (d *Dir) verifyGone(names []string, v *Verification) {
	for _, stream := range d.watermarks.ends() {
		last := d.watermarks.End(stream)
		if last == 0 || slices.Contains(names, stream) {
			continue
		}
		v.Problems = append(v.Problems, Problem{
			Stream: stream, File: d.relative(d.streamDir(stream)), From: 1, To: last,
			What: "the whole stream is gone", Advice: "put a copy of its folder back, or start the relay, which names the loss and begins the stream anew",
		})
	}
}

// verifyRecords decodes every record of the journal's form. In a stream without
// deletions, it names the gaps.
func (d *Dir) verifyRecords(ctx context.Context, stream string, m *meter, v *Verification, named []Quarantined) error {
	decodes := stream == d.layout.Events || stream == d.layout.DeadLetters
	found, err := d.walk(ctx, stream, m, func(f *blockfile.Frame) {
		v.Records++
		v.Bytes += uint64(f.Size)
		if !decodes {
			return
		}
		events, err := d.layout.Check(f.Data)
		v.Events += uint64(events)
		if err == nil {
			return
		}
		at := Span{From: f.Seq, To: f.Seq}
		v.Problems = append(v.Problems, problemOf(stream, at, err.Error(), len(Uncovered([]Span{at}, named, stream)) == 0))
	})
	first, appendOnly := blockfile.AppendOnly(d.streamDir(stream))
	if err != nil || stream != d.layout.Events && !appendOnly {
		return err // a missing dead letter was discarded
	}
	if appendOnly && found.first > first {
		found.gaps = append(found.gaps, Span{From: first, To: found.first - 1})
		found.first = first
	}
	// Damage still there is a problem of its own.
	for _, lost := range found.damages {
		named = append(named, Quarantined{Stream: stream, From: lost.From, To: lost.To})
	}
	open := Uncovered(found.gaps, named, stream)
	for _, gap := range open {
		v.Problems = append(v.Problems, problemOf(stream, gap, "there is no record: it was lost on disk", false))
	}
	for _, q := range named {
		if q.Reason != "" && q.Stream == stream && q.From > 0 && q.To >= found.first {
			v.Problems = append(v.Problems, problemOf(stream, Span{From: q.From, To: q.To}, q.Reason, true))
		}
	}
	return nil
}

func problemOf(stream string, at Span, what string, settled bool) Problem {
	p := Problem{Stream: stream, From: at.From, To: at.To, What: what, Advice: adviceRepair, Settled: settled}
	if settled {
		p.Advice = adviceNone
	}
	return p
}

// verifyPositions looks for sinks' positions beyond all acknowledged records.
func (d *Dir) verifyPositions(v *Verification) error {
	positions, err := d.positions()
	if err != nil {
		return err
	}
	newest, known := d.watermarks.Read(Acknowledged)
	for _, p := range positions {
		name := d.layout.Sinks + p.Sink
		what := ""
		if watermark, ok := d.watermarks.Read(name); ok && p.Position > watermark.Value {
			what = fmt.Sprintf("sink %s stands at position %d, and has acknowledged %d only", p.Sink, p.Position, watermark.Value)
		} else if known && p.Position > newest.Value {
			what = fmt.Sprintf("sink %s stands at position %d, and the newest record is %d", p.Sink, p.Position, newest.Value)
		}
		if what != "" {
			v.Problems = append(v.Problems, Problem{
				Stream: d.layout.Events, File: d.relative(filepath.Join(d.streamDir(d.layout.Events), natsserver.ConsumersDir, name, natsserver.PositionFile)),
				What: what, Advice: adviceRepair + "; it is set back, and the sink may get duplicates",
			})
		}
	}
	return nil
}
