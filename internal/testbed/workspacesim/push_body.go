package workspacesim

import (
	"bytes"
	"io"
	"strconv"
	"sync/atomic"

	"github.com/klauspost/compress/gzip"
)

// bodyBuffer is the body of one push, in the memory of those before it.
type bodyBuffer struct {
	plain   []byte
	packed  bytes.Buffer
	zip     *gzip.Writer
	gzipped bool // send packed
	clock   clock
	// lent counts the requests still reading the body: the transport may read it even
	// after its answer.
	lent *atomic.Int32
}

// build writes the events of segments in the form of t's kind.
func (b *bodyBuffer) build(st *stream, t *target, segments []segment) {
	if b.lent != nil && b.lent.Load() != 0 {
		b.plain, b.packed = nil, bytes.Buffer{}
	}
	b.lent = new(atomic.Int32)
	b.plain = b.plain[:0]
	if t.kind == typeDatadog {
		b.datadog(st, segments)
	} else {
		b.loki(st, segments)
	}
	b.gzipped = share(st.gen.seed^segments[0].From, st.opts.GzipShare)
	if b.gzipped {
		b.pack()
	}
}

// loki writes the body of POST /loki/api/v1/push: one stream of lines.
func (b *bodyBuffer) loki(st *stream, segments []segment) {
	dst := append(b.plain, `{"streams":[{"stream":{"job":"event_log_streaming","project_slug":"`...)
	dst = append(dst, st.env.project...)
	dst = append(dst, `","environment":"`...)
	dst = append(dst, st.env.slug...)
	dst = append(dst, `"},"values":[`...)
	for _, s := range segments {
		at := s.at
		for seq := s.From; seq < s.To; seq++ {
			b.clock.set(at)
			dst = append(dst, `["`...)
			dst = strconv.AppendInt(dst, at, 10)
			dst = append(dst, `","`...)
			dst = st.gen.appendEvent(dst, seq, &b.clock)
			dst = append(dst, `"],`...)
			at += s.step
		}
	}
	b.plain = append(dst[:len(dst)-1], `]}]}`...)
}

// datadog writes the body of POST /api/v2/logs: an array of log entries.
func (b *bodyBuffer) datadog(st *stream, segments []segment) {
	head := `{"ddsource":"event_log_streaming","service":"` + st.env.project + `","hostname":"workspace.example",` +
		`"ddtags":"project_slug:` + st.env.project + `,environment:` + st.env.slug + `","message":"`
	dst := append(b.plain, '[')
	for _, s := range segments {
		at := s.at
		for seq := s.From; seq < s.To; seq++ {
			b.clock.set(at)
			dst = append(dst, head...)
			dst = st.gen.appendEvent(dst, seq, &b.clock)
			dst = append(dst, `"},`...)
			at += s.step
		}
	}
	b.plain = append(dst[:len(dst)-1], ']')
}

func (b *bodyBuffer) pack() {
	b.packed.Reset()
	if b.zip == nil {
		b.zip, _ = gzip.NewWriterLevel(nil, gzip.BestSpeed) // fails for unknown levels only
	}
	b.zip.Reset(&b.packed)
	_, _ = b.zip.Write(b.plain) // a bytes.Buffer takes everything
	_ = b.zip.Close()
}

// reader lends the body to one request.
func (b *bodyBuffer) reader() (io.ReadCloser, int64) {
	data := b.plain
	if b.gzipped {
		data = b.packed.Bytes()
	}
	b.lent.Add(1)
	return &lentBody{data: data, lent: b.lent}, int64(len(data))
}

// lentBody reads a body, and notes its end: nothing will be read again.
type lentBody struct {
	data []byte
	lent *atomic.Int32
}

func (l *lentBody) Read(p []byte) (int, error) {
	if len(l.data) == 0 {
		return 0, io.EOF
	}
	n := copy(p, l.data)
	if l.data = l.data[n:]; len(l.data) == 0 {
		l.lent.Add(-1)
	}
	return n, nil
}

// Close does nothing, as it may be called during Read.
func (l *lentBody) Close() error { return nil }
