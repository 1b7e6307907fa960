package datadir

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/auditrelay/auditrelay/internal/datadir/blockfile"
	"github.com/auditrelay/auditrelay/internal/durable"
)

// Offline is the data directory of a stopped relay. It reads the files itself, as a
// server would change them.
type Offline struct {
	*Dir
	lock *os.File
}

// OpenOffline takes the directory's lock.
func OpenOffline(path string, layout Layout) (*Offline, error) {
	if _, err := os.Stat(serverDir(path)); err != nil {
		return nil, fmt.Errorf("%s holds no journal: %w", path, err)
	}
	lock, err := durable.Lock(path)
	if err != nil {
		return nil, err
	}
	return &Offline{New(path, layout, ReadWatermarks(path)), lock}, nil
}

// Close frees the directory's lock.
func (o *Offline) Close() error { return o.lock.Close() }

// Inspection sums up a journal.
type Inspection struct {
	DataDir    string            `json:"data_dir"`
	Streams    []StreamSummary   `json:"streams"`
	Sinks      []PositionSummary `json:"sinks"`
	Quarantine []Quarantined     `json:"quarantine"`
}

// StreamSummary is one stream. First and Last are positions; Bytes are on disk.
type StreamSummary struct {
	Name    string    `json:"name"`
	Holds   string    `json:"holds"`
	Records uint64    `json:"records"`
	Events  uint64    `json:"events"`
	Bytes   uint64    `json:"bytes"`
	First   uint64    `json:"first"`
	Last    uint64    `json:"last"`
	Oldest  time.Time `json:"oldest,omitzero"`
	Newest  time.Time `json:"newest,omitzero"`
}

// PositionSummary is a sink's position: the newest record it acknowledged, by the last
// write, and the number of records and events behind it.
type PositionSummary struct {
	Sink       string `json:"sink"`
	Position   uint64 `json:"position"`
	LagRecords uint64 `json:"lag_records"`
	LagEvents  uint64 `json:"lag_events"`
}

// Inspect sums up the journal. progress may be nil.
func (d *Dir) Inspect(ctx context.Context, progress func(done, total int64)) (*Inspection, error) {
	in := &Inspection{DataDir: d.path, Quarantine: []Quarantined{}, Sinks: []PositionSummary{}}
	positions, err := d.positions()
	if err != nil {
		return nil, err
	}
	names, err := d.streams()
	if err != nil {
		return nil, err
	}
	meter := d.meter(names, progress)
	for _, stream := range names {
		sum := StreamSummary{Name: stream, Holds: d.holds(stream)}
		v, err := d.walk(ctx, stream, meter, func(f *blockfile.Frame) {
			events := d.layout.Count(f.Data)
			sum.count(f, events)
			switch stream {
			case d.layout.Events:
				for i := range positions {
					positions[i].behind(f, events)
				}
			case d.layout.Quarantine:
				if q, names := quarantinedIn(f); names {
					in.Quarantine = append(in.Quarantine, q)
				}
			}
		})
		if err != nil {
			return nil, err
		}
		sum.First, sum.Last, sum.Bytes = v.first, v.last, v.bytes
		in.Streams = append(in.Streams, sum)
	}
	in.Sinks = append(in.Sinks, positions...)
	return in, nil
}

// holds describes the content of a stream.
func (d *Dir) holds(stream string) string {
	switch stream {
	case d.layout.Events:
		return "acknowledged events"
	case d.layout.DeadLetters:
		return "dead letters"
	case d.layout.Quarantine:
		return "quarantine"
	}
	suffixes := map[string]string{"_AUDIT": "audit trail", "_CHECKPOINTS": "signed checkpoints", "_credentials": "push credentials"}
	for suffix, what := range suffixes {
		if strings.HasSuffix(stream, suffix) {
			return what
		}
	}
	return "other"
}

func (s *StreamSummary) count(f *blockfile.Frame, events uint64) {
	s.Records++
	s.Events += events
	if s.Oldest.IsZero() {
		s.Oldest = f.Time
	}
	s.Newest = f.Time
}

func (p *PositionSummary) behind(f *blockfile.Frame, events uint64) {
	if f.Seq > p.Position {
		p.LagRecords++
		p.LagEvents += events
	}
}

// positions reads the sinks' positions, except damaged ones.
func (d *Dir) positions() ([]PositionSummary, error) {
	dir := d.streamDir(d.layout.Events)
	consumers, err := blockfile.Consumers(dir)
	if err != nil {
		return nil, err
	}
	var all []PositionSummary
	for _, name := range consumers {
		sink, ok := strings.CutPrefix(name, d.layout.Sinks)
		if !ok {
			continue
		}
		at, err := blockfile.ReadPosition(dir, name)
		if err != nil && !errors.Is(err, blockfile.ErrPosition) {
			return nil, err
		}
		// After a kill the watermark is newer than the server's file.
		watermark, _ := d.watermarks.Read(name)
		all = append(all, PositionSummary{Sink: sink, Position: max(at.Acknowledged, watermark.Value)})
	}
	return all, nil
}

// Read calls each with the readable messages of a stream in order, and returns the
// position of the last one. progress may be nil.
func (d *Dir) Read(ctx context.Context, stream string, progress func(done, total int64), each func(seq uint64, subject string, header nats.Header, data []byte) error) (uint64, error) {
	var failed error
	v, err := d.walk(ctx, stream, d.meter([]string{stream}, progress), func(f *blockfile.Frame) {
		if failed == nil {
			failed = each(f.Seq, f.Subject, headersOf(f), f.Data)
		}
	})
	if err = errors.Join(err, failed); err != nil {
		return 0, err
	}
	return v.last, nil
}

// End is the newest known position of a stream beside the events', like the relay's
// Watermark.
func (d *Dir) End(stream string) uint64 { return d.watermarks.End(stream) }

// walk surveys a stream, without its deleted messages.
func (d *Dir) walk(ctx context.Context, stream string, m *meter, each func(f *blockfile.Frame)) (*survey, error) {
	index, err := blockfile.ReadIndex(stream, d.streamDir(stream))
	if err != nil {
		return nil, err
	}
	gone, err := d.deleted(ctx, stream)
	if err != nil {
		return nil, err
	}
	v, err := d.survey(stream, nil, func(f *blockfile.Frame) {
		m.add(f.Size)
		if ctx.Err() == nil && f.Seq >= index.First && !gone[f.Seq] {
			each(f)
		}
	})
	if err = errors.Join(err, ctx.Err()); err != nil {
		return nil, err
	}
	// Blocks are removed whole, so the first one may begin with trimmed records.
	v.first = max(v.first, index.First)
	return v, nil
}

// deleted lists the messages with a tombstone: discarded dead letters, and older values
// of keys. Nothing deletes single events.
func (d *Dir) deleted(ctx context.Context, stream string) (map[uint64]bool, error) {
	if stream == d.layout.Events {
		return nil, nil
	}
	paths, err := blockfile.List(d.streamDir(stream))
	if err != nil {
		return nil, err
	}
	gone := map[uint64]bool{}
	for _, path := range paths {
		b, err := blockfile.Read(stream, path)
		if err != nil {
			return nil, err
		}
		for _, f := range b.Frames(0) {
			if f.Kind == blockfile.Tombstone {
				gone[f.Seq] = true
			}
		}
	}
	return gone, ctx.Err()
}

// meter counts the bytes read.
type meter struct {
	done, total int64
	tell        func(done, total int64) // may be nil
}

func (d *Dir) meter(names []string, tell func(done, total int64)) *meter {
	m := &meter{tell: tell}
	for _, stream := range names {
		paths, _ := blockfile.List(d.streamDir(stream)) // the reader reports the error
		for _, path := range paths {
			if info, err := os.Stat(path); err == nil {
				m.total += info.Size()
			}
		}
	}
	return m
}

func (m *meter) add(n int) {
	m.done += int64(n)
	if m.tell != nil {
		m.tell(m.done, m.total)
	}
}
