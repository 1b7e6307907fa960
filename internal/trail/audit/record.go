package audit

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/klauspost/compress/zstd"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/auditrelay/auditrelay/internal/jsontext"
	"github.com/auditrelay/auditrelay/internal/store"
	tlogproof "github.com/auditrelay/auditrelay/internal/trail/proof"
)

const (
	// maxRecord bounds a record before compression, and so a reader's memory. Before
	// and after of a project's email templates, with the largest HTML shown by mail
	// clients, are a tenth of it.
	maxRecord = 32 << 20
	// compressFrom is the smallest record worth a try of compression. Before and after
	// are nearly the same, so large ones shrink tenfold.
	compressFrom = 16 << 10
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
	record, err := jsontext.Canonical(plain)
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

// resource names what an entry is about. It is the key of the entry's record. Where it would be longer than
// the store takes, the hashes of long names stand in it.
func resource(project, environment, subject string) string {
	tokens := []string{token(project), token(environment), token(subject)}
	key := strings.Join(tokens, ".")
	if len(key) <= store.MaxKey {
		return key
	}
	for i, t := range tokens {
		if len(t) > maxToken {
			tokens[i] = "%%" + jsontext.Hash([]byte(t)) // no other token begins so
		}
	}
	return strings.Join(tokens, ".")
}

// maxToken is a third of the longest key.
const maxToken = store.MaxKey/3 - 1

// resource is the one of the entry.
func (e *Entry) resource() string { return resource(e.Project, e.Environment, e.Subject) }

// token makes any name one token of a key: bytes other than letters, digits, "-" and "_"
// become %XX, and the empty name "%". Most names stay as they are: a start makes the key of each entry.
func token(name string) string {
	if name == "" {
		return "%"
	}
	if !strings.ContainsFunc(name, isEscaped) {
		return name
	}
	var b strings.Builder
	for _, c := range []byte(name) {
		if !isEscaped(rune(c)) {
			b.WriteByte(c)
			continue
		}
		fmt.Fprintf(&b, "%%%02X", c)
	}
	return b.String()
}

// isEscaped reports whether a character, or a byte of one, does not stand for itself in a token.
func isEscaped(c rune) bool {
	return c != '-' && c != '_' && (c < '0' || '9' < c) && (c < 'A' || 'Z' < c) && (c < 'a' || 'z' < c)
}

// codec compresses records; it may be used concurrently.
type codec struct {
	enc *zstd.Encoder
	dec *zstd.Decoder
}

// newCodec makes a codec. It is used for whole records only, and so has nothing to close. The
// library refuses only options out of its bounds.
func newCodec() *codec {
	enc, _ := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithWindowSize(8<<20))
	dec, _ := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(maxRecord))
	return &codec{enc, dec}
}

// pack gives an entry's record the form in which the log keeps it.
func (c *codec) pack(resource string, record []byte) store.Draft {
	if len(record) >= compressFrom {
		if small := c.enc.EncodeAll(record, nil); len(small) < len(record) {
			return store.Draft{Kind: kindZstd, Key: resource, Data: small}
		}
	}
	return store.Draft{Kind: kindPlain, Key: resource, Data: record}
}

// unpack undoes pack.
func (c *codec) unpack(r *store.Record) ([]byte, error) {
	switch r.Kind {
	case kindPlain:
		return r.Data, nil
	case kindZstd:
		record, err := c.dec.DecodeAll(r.Data, nil)
		if err != nil {
			return nil, fmt.Errorf("decompress record: %w", err)
		}
		return record, nil
	default:
		return nil, fmt.Errorf("record is of the unknown kind %d", r.Kind)
	}
}

// open decodes an entry, and holds it against the key of its record, which no leaf hash
// covers. ErrMissing stands for the place of a lost entry. The leaf is that of the record as it
// is, readable or not, and the memory of the record is the log's.
func (c *codec) open(r *store.Record) (e Recorded, err error) {
	index := indexOf(r)
	if r.Kind == kindLost {
		return Recorded{Leaf: lostLeaf(index)}, fmt.Errorf("%w: entry %d", ErrMissing, index)
	}
	if e.Record, err = c.unpack(r); err != nil {
		return Recorded{Leaf: leafHash(r.Data)}, fmt.Errorf("%w: entry %d: %w", ErrDamaged, index, err)
	}
	e.Leaf = leafHash(e.Record)
	if e.Entry, err = decodeRecord(e.Record, index); err != nil {
		return e, fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	if e.resource() != r.Key {
		return e, fmt.Errorf("%w: entry %d stands under %q, not under its resource", ErrDamaged, index, r.Key)
	}
	return e, nil
}
