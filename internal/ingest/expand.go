package ingest

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"

	"github.com/klauspost/compress/flate"
	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zlib"
	"github.com/klauspost/compress/zstd"

	"github.com/auditrelay/auditrelay/internal/wire"
)

// A zstd frame may ask for a window of at most maxWindow. Decoders for windows above
// keptWindow are not kept, because of their memory.
const (
	maxWindow  = 8 << 20
	keptWindow = 1 << 20
)

// The most memory that a decompressor takes besides its input and output.
const (
	inflateRoom = 64 << 10
	zstdRoom    = keptWindow + 1<<20 // a block and its tables come on top of the window
)

// inflaters keep decompressors for reuse: making one is expensive.
type inflaters struct{ gzip, zlib, flate, zstd sync.Pool }

// expand decompresses a push into p.body.decoded.
func (h *Handler) expand(p *push, f form) error {
	p.body.decoded = p.body.raw
	limit := int64(h.limits.DecompressedBytes)
	if f.inflate != nil {
		if err := h.inflate.run(p, f.inflate, limit); err != nil {
			return err
		}
		p.body.decoded = p.body.plain
	}
	if !f.snappy {
		return nil
	}
	n, err := wire.UnsnappyLen(p.body.decoded)
	if err != nil {
		return err
	}
	if int64(n) > limit {
		return tooLarge("the body has %d bytes when decompressed, at most %d are taken", n, limit)
	}
	if f.inflate != nil {
		p.body.raw, p.body.plain = p.body.plain, p.body.raw
	}
	p.body.plain = p.body.plain[:0]
	if err := p.reserve(&p.body.plain, int64(n)); err != nil {
		return err
	}
	p.body.decoded, err = wire.Unsnappy(p.body.plain, p.body.decoded)
	return err
}

// run decompresses p.body.raw into p.body.plain.
func (in *inflaters) run(p *push, inflate inflater, limit int64) error {
	p.body.source.Reset(p.body.raw)
	defer func() { p.extra = 0 }()
	if err := p.hold(inflateRoom); err != nil {
		return err
	}
	return inflate(in, p, limit)
}

func (in *inflaters) gzipped(p *push, limit int64) error {
	r, ok := in.gzip.Get().(*gzip.Reader)
	if !ok {
		r = new(gzip.Reader)
	}
	defer in.gzip.Put(r)
	return p.inflate("gzip", r, r.Reset(&p.body.source), limit)
}

// deflated reads zlib's form, the meaning of deflate in HTTP, and raw deflate, accepted
// by Loki. It recognises a zlib header by its check bits.
func (in *inflaters) deflated(p *push, limit int64) error {
	pool := &in.flate
	fresh := func() (io.Reader, error) { return flate.NewReader(&p.body.source), nil }
	if b := p.body.raw; len(b) >= 2 && b[0]&15 == 8 && (int(b[0])<<8|int(b[1]))%31 == 0 {
		pool = &in.zlib
		fresh = func() (io.Reader, error) { return zlib.NewReader(&p.body.source) }
	}
	r, ok := pool.Get().(zlib.Resetter) // flate's has the same method
	if ok {
		err := r.Reset(&p.body.source, nil)
		defer pool.Put(r)
		return p.inflate("deflate", r.(io.Reader), err, limit) //nolint:forcetypeassert // as it was made
	}
	made, err := fresh()
	if err == nil {
		defer pool.Put(made)
	}
	return p.inflate("deflate", made, err, limit)
}

// zstandard tries a decoder for small windows from the pool. Only where a frame asks for more, which
// the first one's header does not always tell, it makes one for large windows, and counts its memory.
func (in *inflaters) zstandard(p *push, limit int64) error {
	if err := p.hold(zstdRoom); err != nil {
		return err
	}
	d, ok := in.zstd.Get().(*zstd.Decoder)
	if !ok {
		var err error
		if d, err = newZstd(keptWindow); err != nil {
			return err
		}
	}
	err := p.inflate("zstd", d, d.Reset(&p.body.source), limit)
	if d.Reset(nil) == nil {
		in.zstd.Put(d)
	}
	if !isWindow(err) {
		return err
	}
	if err := p.hold(maxWindow + zstdRoom); err != nil {
		return err
	}
	large, err := newZstd(maxWindow)
	if err != nil {
		return err
	}
	defer large.Close()
	p.body.source.Reset(p.body.raw)
	return p.inflate("zstd", large, large.Reset(&p.body.source), limit)
}

// isWindow reports whether a frame needs a larger window than its decoder allows.
func isWindow(err error) bool {
	return errors.Is(err, zstd.ErrWindowSizeExceeded) || errors.Is(err, zstd.ErrDecoderSizeExceeded)
}

// hold counts n bytes besides the push's buffers.
func (p *push) hold(n int64) error {
	p.extra = n
	return p.lease.grow(p.size())
}

// newZstd makes a decoder for the caller's goroutine. So none stays in a pool.
func newZstd(window uint64) (*zstd.Decoder, error) {
	d, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(window))
	if err != nil {
		return nil, fmt.Errorf("make a zstd decoder: %w", err)
	}
	return d, nil
}

// inflate reads r to its end into p.body.plain. ready is the error of preparing r.
func (p *push) inflate(name string, r io.Reader, ready error, limit int64) error {
	p.body.plain = p.body.plain[:0]
	err := ready
	for err == nil {
		// Well compressible text shrinks to an eighth or so.
		room := max(int64(8*len(p.body.raw)), 2*int64(cap(p.body.plain)), headBytes)
		if len(p.body.plain) < cap(p.body.plain) {
			room = int64(cap(p.body.plain))
		}
		if err := p.reserve(&p.body.plain, min(room, limit+1)); err != nil {
			return err
		}
		var n int
		n, err = r.Read(p.body.plain[len(p.body.plain):cap(p.body.plain)])
		p.body.plain = p.body.plain[:len(p.body.plain)+n]
		if int64(len(p.body.plain)) > limit {
			return tooLarge("the body has more than the allowed %d bytes when decompressed", limit)
		}
	}
	switch {
	case errors.Is(err, io.EOF) && p.body.source.Len() == 0:
		return nil
	case errors.Is(err, io.EOF): // a reader of deflate stops at the end of its stream
		err = errors.New("other bytes follow its end")
	case isWindow(err):
		r := tooLarge("the body's zstd window is larger than the allowed %d bytes", maxWindow)
		r.cause = err
		return r
	}
	return &refusal{status: http.StatusBadRequest, reason: "malformed", text: fmt.Sprintf("the body is no %s: %v", name, err)}
}

// form is the format and the compression of a push.
type form struct {
	*format
	inflate inflater // nil for a body that is not compressed
}

// inflater decompresses p.body.raw into p.body.plain, at most limit bytes.
type inflater func(in *inflaters, p *push, limit int64) error

// encodings are the compressions of a body, by their names in Content-Encoding.
var encodings = map[string]inflater{
	"": nil, "identity": nil, "gzip": (*inflaters).gzipped, "x-gzip": (*inflaters).gzipped,
	"deflate": (*inflaters).deflated, "zstd": (*inflaters).zstandard,
}

// formOf reads Content-Type and Content-Encoding.
func formOf(r *http.Request, e *endpoint) (f form, err error) {
	if f.format, err = e.formatOf(r.Header.Get("Content-Type")); err != nil {
		return f, err
	}
	name := strings.ToLower(strings.TrimSpace(r.Header.Get("Content-Encoding")))
	inflate, known := encodings[name]
	if !known && (name != "snappy" || !f.snappy) {
		return f, unsupported("Content-Encoding %q is not supported: gzip, deflate, zstd or none", name)
	}
	f.inflate = inflate
	return f, nil
}

// unsupported is a 415 with the header's value, shortened.
func unsupported(text, value string) *refusal {
	if len(value) > 64 {
		value = value[:64]
	}
	return &refusal{status: http.StatusUnsupportedMediaType, reason: "unsupported", hangUp: true, text: fmt.Sprintf(text, value)}
}

// queryValue returns the first value of a name in a URL's query, like
// [net/url.Values.Get], but without a map of a stranger's making.
func queryValue(query, name string) string {
	for query != "" {
		var pair string
		pair, query, _ = strings.Cut(query, "&")
		key, value, _ := strings.Cut(pair, "=")
		if key, err := url.QueryUnescape(key); err != nil || key != name || strings.Contains(pair, ";") {
			continue
		}
		if value, err := url.QueryUnescape(value); err == nil {
			return value
		}
	}
	return ""
}
