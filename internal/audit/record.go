package audit

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/klauspost/compress/zstd"
	"github.com/nats-io/nats.go"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/auditrelay/auditrelay/internal/json/jsondiff"
	tlogproof "github.com/auditrelay/auditrelay/internal/proof"
)

const (
	// maxRecord bounds a record before compression, and so a reader's memory. Before
	// and after of a project's email templates, with the largest HTML shown by mail
	// clients, are a tenth of it.
	maxRecord = 32 << 20
	// compressFrom is the smallest record worth a try of compression. Before and after
	// are nearly the same, so large ones shrink tenfold.
	compressFrom = 16 << 10
	// headerRoom is the share of a message's headers in the server's maximum.
	headerRoom = 1 << 10

	encodingHeader = "Content-Encoding"
	encodingZstd   = "zstd"
)

// encodeRecord gives the canonical bytes, as kept and hashed by the trail.
func encodeRecord(e Entry) ([]byte, error) {
	if err := e.check(); err != nil {
		return nil, fmt.Errorf("check entry: %w", err)
	}
	e.Time = e.Time.UTC()
	if e.Window != nil {
		e.Window = &Window{After: e.Window.After.UTC(), Until: e.Window.Until.UTC()}
	}
	plain, err := json.Marshal(e)
	if err != nil {
		return nil, fmt.Errorf("encode entry: %w", err)
	}
	record, err := jsondiff.Canonical(plain)
	if err != nil {
		return nil, err
	}
	if len(record) > maxRecord {
		return nil, fmt.Errorf("%w: %s has %d bytes, the limit is %d", ErrTooLarge, e.Subject, len(record), maxRecord)
	}
	return record, nil
}

// decodeRecord decodes the form of encodeRecord.
func decodeRecord(record []byte, index int64) (Entry, error) {
	e := Entry{}
	if err := json.Unmarshal(record, &e); err != nil {
		return Entry{}, fmt.Errorf("decode entry %d: %w", index, err)
	}
	e.Index = index
	return e, nil
}

// leafHash is the hash of a record's leaf.
func leafHash(record []byte) tlog.Hash { return tlogproof.LeafHash(record) }

// resourceSubject is the NATS subject of a resource's entries.
func resourceSubject(prefix, project, environment, subject string) string {
	return strings.Join([]string{prefix, "audit", token(project), token(environment), token(subject)}, ".")
}

// token makes any name one token of a subject: bytes other than letters,
// digits, "-" and "_" as %XX, and the empty name as "%".
func token(name string) string {
	if name == "" {
		return "%"
	}
	var b strings.Builder
	for _, c := range []byte(name) {
		if c == '-' || c == '_' || '0' <= c && c <= '9' || 'A' <= c && c <= 'Z' || 'a' <= c && c <= 'z' {
			b.WriteByte(c)
			continue
		}
		fmt.Fprintf(&b, "%%%02X", c)
	}
	return b.String()
}

// codec compresses records; it may be used concurrently.
type codec struct {
	enc *zstd.Encoder
	dec *zstd.Decoder
}

func newCodec() (*codec, error) {
	enc, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithWindowSize(8<<20))
	if err != nil {
		return nil, fmt.Errorf("make compressor: %w", err)
	}
	dec, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(maxRecord))
	if err != nil {
		return nil, fmt.Errorf("make decompressor: %w", err)
	}
	return &codec{enc, dec}, nil
}

func (c *codec) close() {
	_ = c.enc.Close()
	c.dec.Close()
}

// pack makes the message of a record.
func (c *codec) pack(subject string, record []byte) *nats.Msg {
	msg := nats.NewMsg(subject)
	msg.Data = record
	if len(record) < compressFrom {
		return msg
	}
	if small := c.enc.EncodeAll(record, nil); len(small) < len(record) {
		msg.Data = small
		msg.Header.Set(encodingHeader, encodingZstd)
	}
	return msg
}

// unpack gives back the record of a message.
func (c *codec) unpack(header nats.Header, data []byte) ([]byte, error) {
	switch encoding := header.Get(encodingHeader); encoding {
	case "":
		return data, nil
	case encodingZstd:
		record, err := c.dec.DecodeAll(data, nil)
		if err != nil {
			return nil, fmt.Errorf("decompress record: %w", err)
		}
		return record, nil
	default:
		return nil, fmt.Errorf("record has the unknown encoding %q", encoding)
	}
}
