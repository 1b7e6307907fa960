package journal

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/auditrelay/auditrelay/internal/blockfile"
)

// Verification is what [Offline.Verify] found.
type Verification struct {
	Records  uint64    `json:"records"`
	Events   uint64    `json:"events"`
	Bytes    uint64    `json:"bytes"`
	Problems []Problem `json:"problems"`
}

// Open is how many problems are not settled.
func (v *Verification) Open() int {
	n := 0
	for _, p := range v.Problems {
		if !p.Settled {
			n++
		}
	}
	return n
}

// Problem is a run of positions, or a file, that is not as it should be.
type Problem struct {
	Stream string `json:"stream"`
	File   string `json:"file,omitempty"` // relative to the data directory
	Offset int    `json:"offset,omitempty"`
	Bytes  int    `json:"bytes,omitempty"`
	From   uint64 `json:"from,omitempty"`
	To     uint64 `json:"to,omitempty"`
	What   string `json:"what"`
	Advice string `json:"advice"`
	// Settled says that the quarantine names it, so that there is nothing left to do.
	Settled bool `json:"settled"`
}

const (
	adviceRepair = "run 'auditrelay journal repair', or start the relay, which does the same"
	adviceNone   = "nothing is left to do: the quarantine names it"
)

// Verify reads every record of every stream and checks the server's checksums. It
// decodes the events and the dead letters, and looks for positions without a record
// where nothing deletes any, and for positions of sinks that cannot be right. It
// changes nothing: no server opens the files. progress may be nil.
func (o *Offline) Verify(ctx context.Context, progress func(done, total int64)) (*Verification, error) {
	v := &Verification{Problems: []Problem{}}
	names, err := o.streams()
	if err != nil {
		return nil, err
	}
	m := o.meter(names, progress)
	var named []Quarantined
	if _, err := o.walk(ctx, o.names.quarantine, m, func(f *blockfile.Frame) {
		if q, names := quarantinedIn(f); names {
			named = append(named, q)
		}
	}); err != nil {
		return nil, err
	}
	for _, stream := range names {
		if err := o.verifyStream(ctx, stream, m, v, named); err != nil {
			return nil, err
		}
	}
	o.verifyGone(names, v)
	return v, o.verifyPositions(v)
}

// verifyStream names what a start would mend, and what it would report.
func (o *Offline) verifyStream(ctx context.Context, stream string, m *meter, v *Verification, named []Quarantined) error {
	mendings, err := o.mendStream(stream, true)
	if err != nil && !slices.Contains(o.own(), stream) {
		v.Problems = append(v.Problems, Problem{
			Stream: stream, File: o.relative(o.streamDir(stream)), From: 1, What: err.Error(),
			Advice: adviceRepair + "; its folder is moved to the salvage folder, and the stream begins anew",
		})
		return nil
	}
	if err != nil {
		return err
	}
	for _, d := range mendings {
		v.Problems = append(v.Problems, Problem{
			Stream: d.Stream, File: d.File, Offset: d.Offset, Bytes: d.Bytes, From: d.From, To: d.To,
			What: d.Problem, Advice: adviceRepair,
		})
	}
	if stream == o.names.quarantine {
		return nil // read before
	}
	return o.verifyRecords(ctx, stream, m, v, named)
}

// verifyGone names streams of which there is nothing but a note of their end.
func (o *Offline) verifyGone(names []string, v *Verification) {
	noted, _ := os.ReadDir(filepath.Join(o.marks.dir, endsDir)) // what cannot be read says nothing
	for _, e := range noted {
		last := o.marks.end(e.Name())
		if last == 0 || slices.Contains(names, e.Name()) {
			continue
		}
		v.Problems = append(v.Problems, Problem{
			Stream: e.Name(), File: o.relative(o.streamDir(e.Name())), From: 1, To: last,
			What: "the whole stream is gone", Advice: "put a copy of its folder back, or start the relay, which names the loss and begins the stream anew",
		})
	}
}

// verifyRecords decodes every record that has the journal's form, and names what
// is missing between the records of a stream that lets nothing go.
func (o *Offline) verifyRecords(ctx context.Context, stream string, m *meter, v *Verification, named []Quarantined) error {
	decodes := stream == o.names.events || stream == o.names.dead
	found, err := o.walk(ctx, stream, m, func(f *blockfile.Frame) {
		v.Records++
		v.Bytes += uint64(f.Size)
		if !decodes {
			return
		}
		events, err := checkRecord(f.Data)
		v.Events += uint64(events)
		if err == nil {
			return
		}
		at := span{f.Seq, f.Seq}
		v.Problems = append(v.Problems, problemOf(stream, at, err.Error(), len(uncovered([]span{at}, named, stream)) == 0))
	})
	first, appendOnly := blockfile.AppendOnly(o.streamDir(stream))
	if err != nil || stream != o.names.events && !appendOnly {
		return err // a dead letter that is gone was discarded
	}
	if appendOnly && found.first > first {
		found.gaps = append(found.gaps, span{first, found.first - 1})
		found.first = first
	}
	// Damage that is there still is a problem of its own.
	for _, d := range found.damages {
		named = append(named, Quarantined{Stream: stream, From: d.From, To: d.To})
	}
	open := uncovered(found.gaps, named, stream)
	for _, gap := range open {
		v.Problems = append(v.Problems, problemOf(stream, gap, "there is no record: it was lost on disk", false))
	}
	for _, q := range named {
		if q.Reason != "" && q.Stream == stream && q.From > 0 && q.To >= found.first {
			v.Problems = append(v.Problems, problemOf(stream, span{q.From, q.To}, q.Reason, true))
		}
	}
	return nil
}

func problemOf(stream string, at span, what string, settled bool) Problem {
	p := Problem{Stream: stream, From: at.from, To: at.to, What: what, Advice: adviceRepair, Settled: settled}
	if settled {
		p.Advice = adviceNone
	}
	return p
}

// verifyPositions looks for sinks' positions beyond what they can have acknowledged.
func (o *Offline) verifyPositions(v *Verification) error {
	positions, err := o.positions()
	if err != nil {
		return err
	}
	newest, known := o.marks.read(markAcknowledged)
	for _, p := range positions {
		name := consumerPrefix + p.Sink
		what := ""
		if mark, ok := o.marks.read(name); ok && p.Position > mark.value {
			what = fmt.Sprintf("sink %s stands at position %d, and has acknowledged %d only", p.Sink, p.Position, mark.value)
		} else if known && p.Position > newest.value {
			what = fmt.Sprintf("sink %s stands at position %d, and the newest record is %d", p.Sink, p.Position, newest.value)
		}
		if what != "" {
			v.Problems = append(v.Problems, Problem{
				Stream: o.names.events, File: o.relative(filepath.Join(o.streamDir(o.names.events), "obs", name, "o.dat")),
				What: what, Advice: adviceRepair + "; it is set back, and the sink may get duplicates",
			})
		}
	}
	return nil
}
