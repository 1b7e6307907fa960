package kafka

import (
	"encoding/binary"
	"hash/crc32"
	"io"
	"math/bits"

	"github.com/klauspost/compress/s2"
	"github.com/segmentio/kafka-go"

	"github.com/auditrelay/auditrelay/relay"
)

// batch makes Kafka record batches, version 2 ("magic", KIP-98; brokers since 0.11 take it), in
// memory that is reused. kafka-go's own encoder passes each field through several layers of
// writers; this one appends.
type batch struct {
	set     []byte // the batch, with its length before it, as a produce request carries it
	raw     []byte // records before compression
	scratch record

	compression kafka.Compression
	numbered    bool           // a transaction's: its numbers are set when it is sent
	stream      io.WriteCloser // compresses into set; nil for snappy and for no compression
	framed      bool           // for snappy: its header is written
	failed      error          // the stream's error
}

// sizeBytes is the size of the length that precedes a batch.
const sizeBytes = 4

// The positions of the fields in a batch, in bytes from its start.
const (
	lengthAt         = 8
	epochAt          = 12
	magicAt          = 16
	checksumAt       = 17
	attributesAt     = 21 // the checksum is over everything from here
	lastOffsetAt     = 23
	firstTimestampAt = 27
	maxTimestampAt   = 35
	producerAt       = 43 // see producer
	recordCountAt    = 57
	batchHeader      = 61
)

// blockBytes is how much of the records is compressed at a time: within snappy's window, and
// small enough for the cache.
const blockBytes = 60 << 10

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// encode makes b the batch of a non-empty run of events.
func (b *batch) encode(events []relay.Event, run []int32, f form, c kafka.Compression) error {
	b.begin(c)
	r := &b.scratch
	var first, latest int64
	n := 0
	for ; len(run) > 0; n++ {
		run = run[r.set(events, run, f):]
		if n == 0 {
			first = r.at
		}
		latest = max(latest, r.at)
		b.raw = r.append(b.raw, r.at-first, int64(n))
		if len(b.raw) >= blockBytes {
			b.flush()
		}
	}
	b.end(first, latest, n)
	if !b.numbered {
		b.seal(0, unnumbered)
	}
	return b.failed
}

func (b *batch) begin(c kafka.Compression) {
	b.compression, b.stream, b.framed, b.failed = c, nil, false, nil
	b.raw = b.raw[:0]
	b.set = append(b.set[:0], make([]byte, sizeBytes+batchHeader)...)
	if c != 0 && c != kafka.Snappy {
		b.stream = c.Codec().NewWriter((*appender)(b))
	}
}

// flush compresses raw.
func (b *batch) flush() {
	switch {
	case b.stream != nil:
		if b.failed == nil {
			_, b.failed = b.stream.Write(b.raw)
		}
	case b.compression == kafka.Snappy:
		b.appendSnappy()
	default:
		b.set = append(b.set, b.raw...)
	}
	b.raw = b.raw[:0]
}

// xerial is how a snappy stream begins when it is framed as the Java client does: a magic, the
// version, and the oldest version that can read it. Blocks follow, each preceded by its length
// (snappy-java, SnappyOutputStream).
const xerial = "\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01"

func (b *batch) appendSnappy() {
	if !b.framed {
		b.set = append(b.set, xerial...)
		b.framed = true
	}
	at := len(b.set)
	b.set = grown(b.set, sizeBytes+s2.MaxEncodedLen(len(b.raw)))
	// The fast level takes half the time of the default, for a tenth more bytes.
	block := s2.EncodeSnappy(b.set[at+sizeBytes:cap(b.set)], b.raw)
	binary.BigEndian.PutUint32(b.set[at:cap(b.set)], uint32(len(block))) //nolint:gosec // bounded by batch_bytes
	b.set = b.set[:at+sizeBytes+len(block)]
}

// grown returns b with room for n further bytes.
func grown(b []byte, n int) []byte {
	if cap(b)-len(b) >= n {
		return b
	}
	return append(make([]byte, 0, max(2*cap(b), len(b)+n)), b...)
}

// end compresses the rest and fills in the header.
func (b *batch) end(first, latest int64, records int) {
	if len(b.raw) > 0 {
		b.flush()
	}
	if b.stream != nil {
		if err := b.stream.Close(); b.failed == nil {
			b.failed = err
		}
		b.stream = nil
	}
	put := binary.BigEndian
	put.PutUint32(b.set, uint32(len(b.set)-sizeBytes)) //nolint:gosec // bounded by batch_bytes
	head := b.set[sizeBytes:]
	put.PutUint32(head[lengthAt:], uint32(len(head)-epochAt)) //nolint:gosec // bounded by batch_bytes
	put.PutUint32(head[epochAt:], 1<<32-1)
	head[magicAt] = 2
	put.PutUint32(head[lastOffsetAt:], uint32(records-1)) //nolint:gosec // at most the events of a delivery
	put.PutUint64(head[firstTimestampAt:], uint64(first))
	put.PutUint64(head[maxTimestampAt:], uint64(latest))
	put.PutUint32(head[recordCountAt:], uint32(records)) //nolint:gosec // at most the events of a delivery
}

// producer is who made a batch, and the number of its first record among those that it sent to
// the partition.
type producer struct {
	id    int64
	epoch int16
	first int32
}

// unnumbered stands in the batches of no producer.
var unnumbered = producer{-1, -1, -1}

// transactional is the attribute of a batch that is part of a transaction.
const transactional = 1 << 4

// seal writes the last fields, and the checksum.
func (b *batch) seal(attributes uint16, p producer) {
	put, head := binary.BigEndian, b.set[sizeBytes:]
	put.PutUint16(head[attributesAt:], attributes|uint16(b.compression))
	put.PutUint64(head[producerAt:], uint64(p.id))       //nolint:gosec // the protocol's form
	put.PutUint16(head[producerAt+8:], uint16(p.epoch))  //nolint:gosec // the protocol's form
	put.PutUint32(head[producerAt+10:], uint32(p.first)) //nolint:gosec // the protocol's form
	put.PutUint32(head[checksumAt:], crc32.Checksum(head[attributesAt:], castagnoli))
}

// records is how many records the batch has.
func (b *batch) records() int32 {
	return int32(binary.BigEndian.Uint32(b.set[sizeBytes+recordCountAt:])) //nolint:gosec // at most the events of a delivery
}

// forget drops the last delivery's events, and memory that has grown too large.
func (b *batch) forget() {
	b.scratch.forget()
	if cap(b.set) > maxKeptBody {
		b.set = nil
	}
	if cap(b.raw) > maxKeptBody {
		b.raw = nil
	}
}

// appender is a batch as the writer that a compressing stream writes to.
type appender batch

func (a *appender) Write(p []byte) (int, error) {
	a.set = append(a.set, p...)
	return len(p), nil
}

// varintLen is the length of n as binary.AppendVarint writes it.
func varintLen(n int64) int {
	zigzag := uint64(n<<1) ^ uint64(n>>63) //nolint:gosec // the encoding
	return (bits.Len64(zigzag|1) + 6) / 7
}
