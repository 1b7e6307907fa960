package journal

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"golang.org/x/sys/unix"

	"github.com/auditrelay/auditrelay/internal/blockfile"
)

// Offline is the journal of a data directory on which no relay runs. It reads
// the files themselves, as a server that opened them would change them.
type Offline struct {
	store
	lock *os.File
}

// OpenOffline takes the directory's lock; streamPrefix is as in the configuration.
func OpenOffline(dataDir, streamPrefix string) (*Offline, error) {
	if _, err := os.Stat(filepath.Join(dataDir, "jetstream")); err != nil {
		return nil, fmt.Errorf("%s holds no journal: %w", dataDir, err)
	}
	lock, err := lockOffline(dataDir)
	if err != nil {
		return nil, err
	}
	m := &marks{dir: filepath.Join(dataDir, "marks")} // only read
	return &Offline{store{dataDir, namesFor(streamPrefix), m}, lock}, nil
}

func lockOffline(dataDir string) (*os.File, error) {
	lock, err := lockDir(dataDir)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return nil, fmt.Errorf("a relay is running on %s: stop it first, or ask it (/status, /metrics); nothing was read", dataDir)
	}
	return lock, err
}

// Close lets go of the directory.
func (o *Offline) Close() error { return o.lock.Close() }

// Inspection is what a journal holds.
type Inspection struct {
	DataDir    string            `json:"data_dir"`
	Streams    []StreamSummary   `json:"streams"`
	Sinks      []PositionSummary `json:"sinks"`
	Quarantine []Quarantined     `json:"quarantine"`
}

// StreamSummary is one stream. First and Last are positions, Bytes are on disk.
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

// PositionSummary is a sink's position: the newest record that it has
// acknowledged, as written last, and how many records and events are behind it.
type PositionSummary struct {
	Sink       string `json:"sink"`
	Position   uint64 `json:"position"`
	LagRecords uint64 `json:"lag_records"`
	LagEvents  uint64 `json:"lag_events"`
}

// Inspect sums up the journal. progress may be nil.
func (o *Offline) Inspect(ctx context.Context, progress func(done, total int64)) (*Inspection, error) {
	in := &Inspection{DataDir: o.dataDir, Quarantine: []Quarantined{}, Sinks: []PositionSummary{}}
	positions, err := o.positions()
	if err != nil {
		return nil, err
	}
	names, err := o.streams()
	if err != nil {
		return nil, err
	}
	meter := o.meter(names, progress)
	for _, stream := range names {
		sum := StreamSummary{Name: stream, Holds: o.holds(stream)}
		v, err := o.walk(ctx, stream, meter, func(f *blockfile.Frame) {
			sum.count(f)
			switch stream {
			case o.names.events:
				for i := range positions {
					positions[i].behind(f)
				}
			case o.names.quarantine:
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

// holds says what a stream is for.
func (o *Offline) holds(stream string) string {
	switch stream {
	case o.names.events:
		return "acknowledged events"
	case o.names.dead:
		return "dead letters"
	case o.names.quarantine:
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

// quarantinedIn reads a message of the quarantine's stream, and is false where
// it names nothing.
func quarantinedIn(f *blockfile.Frame) (Quarantined, bool) {
	header, err := nats.DecodeHeadersMsg(f.Header)
	if err != nil {
		return Quarantined{}, false
	}
	return quarantinedOf(header, len(f.Data), f.Time)
}

func (s *StreamSummary) count(f *blockfile.Frame) {
	s.Records++
	s.Events += eventCount(f.Data)
	if s.Oldest.IsZero() {
		s.Oldest = f.Time
	}
	s.Newest = f.Time
}

// eventCount is what the record's header says.
func eventCount(rec []byte) uint64 {
	if len(rec) < recordHeader || string(rec[:4]) != recordMagic {
		return 0
	}
	return uint64(binary.LittleEndian.Uint32(rec[8:]))
}

func (p *PositionSummary) behind(f *blockfile.Frame) {
	if f.Seq > p.Position {
		p.LagRecords++
		p.LagEvents += eventCount(f.Data)
	}
}

// positions reads those that can be read.
func (o *Offline) positions() ([]PositionSummary, error) {
	dir := o.streamDir(o.names.events)
	consumers, err := blockfile.Consumers(dir)
	if err != nil {
		return nil, err
	}
	var all []PositionSummary
	for _, name := range consumers {
		sink, ok := strings.CutPrefix(name, consumerPrefix)
		if !ok {
			continue
		}
		at, err := blockfile.ReadPosition(dir, name)
		if err != nil && !errors.Is(err, blockfile.ErrPosition) {
			return nil, err
		}
		// After a kill the mark is newer than what the server wrote.
		mark, _ := o.marks.read(name)
		all = append(all, PositionSummary{Sink: sink, Position: max(at.Acknowledged, mark.value)})
	}
	return all, nil
}

// Read calls each with the readable messages of a stream in order, and returns the
// newest position that it has given out.
func (o *Offline) Read(ctx context.Context, stream string, each func(seq uint64, subject string, header nats.Header, data []byte) error) (uint64, error) {
	var failed error
	v, err := o.walk(ctx, stream, &meter{}, func(f *blockfile.Frame) {
		var header nats.Header
		if len(f.Header) > 0 {
			header, _ = nats.DecodeHeadersMsg(f.Header) // without them the message says less
		}
		if failed == nil {
			failed = each(f.Seq, f.Subject, header, f.Data)
		}
	})
	if err = errors.Join(err, failed); err != nil {
		return 0, err
	}
	return v.last, nil
}

// End is how far a stream beside the events' has come, as the relay has noted.
func (o *Offline) End(stream string) uint64 { return o.marks.end(stream) }

// walk surveys a stream, without the messages that were deleted.
func (o *Offline) walk(ctx context.Context, stream string, m *meter, each func(f *blockfile.Frame)) (*survey, error) {
	index, err := blockfile.ReadIndex(stream, o.streamDir(stream))
	if err != nil {
		return nil, err
	}
	gone, err := o.deleted(ctx, stream)
	if err != nil {
		return nil, err
	}
	v, err := o.survey(stream, func(f *blockfile.Frame) {
		m.add(f.Size)
		if ctx.Err() == nil && f.Seq >= index.First && !gone[f.Seq] {
			each(f)
		}
	})
	if err = errors.Join(err, ctx.Err()); err != nil {
		return nil, err
	}
	// A block is removed whole, so it may begin with what was let go.
	v.first = max(v.first, index.First)
	return v, nil
}

// deleted are the messages that a tombstone was written for: dead letters that
// were discarded, and older values of keys. Nothing deletes single events.
func (o *Offline) deleted(ctx context.Context, stream string) (map[uint64]bool, error) {
	if stream == o.names.events {
		return nil, nil
	}
	paths, err := blockfile.List(o.streamDir(stream))
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

// meter counts bytes that were read.
type meter struct {
	done, total int64
	tell        func(done, total int64) // may be nil
}

func (o *Offline) meter(names []string, tell func(done, total int64)) *meter {
	m := &meter{tell: tell}
	for _, stream := range names {
		paths, _ := blockfile.List(o.streamDir(stream)) // told when they are read
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
