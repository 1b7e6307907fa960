package datadir

import (
	"context"
	"slices"

	"github.com/nats-io/nats.go"

	"github.com/auditrelay/auditrelay/internal/datadir/blockfile"
)

// Messages reads single messages of a stream whose files nobody changes meanwhile. It keeps
// the block read last.
type Messages struct {
	stream string
	blocks []firstIn
	gone   map[uint64]bool
	least  uint64 // trimmed before

	path   string // of the block read last
	frames []blockfile.Frame
}

// firstIn is a block with messages, by the first one's sequence.
type firstIn struct {
	seq  uint64
	path string
}

// Messages reads the stream once, to find its messages.
func (o *Offline) Messages(ctx context.Context, stream string) (*Messages, error) {
	index, err := blockfile.ReadIndex(stream, o.streamDir(stream))
	if err != nil {
		return nil, err
	}
	paths, err := blockfile.List(o.streamDir(stream))
	if err != nil {
		return nil, err
	}
	m := &Messages{stream: stream, gone: map[uint64]bool{}, least: index.First}
	last := uint64(0)
	for _, path := range paths {
		b, err := blockfile.Read(stream, path)
		if err != nil {
			return nil, err
		}
		first := uint64(0)
		for _, f := range b.Frames(last) {
			switch f.Kind {
			case blockfile.Message:
				last = max(last, f.Seq)
				if first == 0 {
					first = f.Seq
					m.blocks = append(m.blocks, firstIn{first, path})
				}
			case blockfile.Tombstone:
				m.gone[f.Seq] = true
			}
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
	}
	return m, nil
}

// Get reads one message, and says whether it can be read.
func (m *Messages) Get(seq uint64) (subject string, header nats.Header, data []byte, found bool, err error) {
	at, exact := slices.BinarySearchFunc(m.blocks, seq, func(b firstIn, seq uint64) int { return int(int64(b.seq) - int64(seq)) })
	if !exact {
		at--
	}
	if at < 0 || seq < m.least || m.gone[seq] {
		return "", nil, nil, false, nil
	}
	if path := m.blocks[at].path; path != m.path {
		b, err := blockfile.Read(m.stream, path)
		if err != nil {
			return "", nil, nil, false, err
		}
		m.path, m.frames = path, b.Frames(m.blocks[at].seq-1)
	}
	for i := range m.frames {
		if f := &m.frames[i]; f.Kind == blockfile.Message && f.Seq == seq {
			return f.Subject, headersOf(f), f.Data, true, nil
		}
	}
	return "", nil, nil, false, nil
}

func headersOf(f *blockfile.Frame) (header nats.Header) {
	if len(f.Header) > 0 {
		header, _ = nats.DecodeHeadersMsg(f.Header) // without them the message says less
	}
	return header
}
