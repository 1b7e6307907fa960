package timeline

import (
	"encoding/binary"
	"errors"
	"strings"
	"time"
	"unicode/utf8"
)

// line is a row before it is in the table.
type line struct {
	time                                              time.Time
	kind, project, environment, subject, cause, actor string
	severity, direction                               uint8
	flags                                             flags
	reviews                                           int64 // with isAnnotation: the entry it marks
	summary, further                                  string
}

const (
	// maxSummary bounds a sentence in a list, in bytes.
	maxSummary = 1000
	// maxFurther bounds the other sentences of an entry. They are kept to be found only.
	maxFurther = 8000
	// behindSummary ends the summary in a text with further sentences.
	behindSummary = 0
)

// text is the line's sentences as they stand in the file.
func (l *line) text() string {
	text := strings.ReplaceAll(bounded(l.summary, maxSummary), "\x00", " ")
	if l.further != "" {
		text += "\x00" + l.further
	}
	return text
}

// A batch is the rows of one write:
//
//	index of the first row        8 bytes, little endian like all
//	index and hash of an entry    8 and 32: the newest readable one
//	number of new names, each     uvarint; uvarint length, bytes
//	number of rows, each          uvarint; flags, and unless it is missing: time (8), six
//	                              names, severity and direction, an annotation's entry, text:
//	                              the summary, and further sentences after a zero byte
//
// encode makes a batch that continues the table's rows.
func (t *table) encode(ids map[string]uint16, lines []line, newest int64, leaf [32]byte) []byte {
	b := binary.LittleEndian.AppendUint64(nil, uint64(t.n))
	b = binary.LittleEndian.AppendUint64(b, uint64(newest))
	b = append(b, leaf[:]...)
	known := len(ids)
	var rows, names []byte
	name := func(s string, limit int) {
		id, ok := ids[s]
		if !ok && len(ids) < limit {
			id = uint16(len(ids))
			ids[s] = id
			names = appendText(names, s)
		} else if !ok {
			id = 0 // otherName
		}
		rows = binary.AppendUvarint(rows, uint64(id))
	}
	if known == 0 {
		ids[otherName] = 0
		names = appendText(names, otherName)
	}
	for i := range lines {
		l := &lines[i]
		if rows = append(rows, byte(l.flags)); l.flags&isMissing != 0 {
			continue
		}
		rows = binary.LittleEndian.AppendUint64(rows, uint64(l.time.UnixNano()))
		for _, s := range []string{l.kind, l.project, l.environment, l.subject, l.cause} {
			name(s, maxNames-1)
		}
		name(l.actor, maxActors)
		rows = append(rows, byte(levelsOf(l.severity, l.direction)))
		if l.flags&isAnnotation != 0 {
			rows = binary.AppendUvarint(rows, uint64(l.reviews))
		}
		rows = appendText(rows, l.text())
	}
	b = append(binary.AppendUvarint(b, uint64(len(ids)-known)), names...)
	return append(binary.AppendUvarint(b, uint64(len(lines))), rows...)
}

func appendText(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

// bounded cuts a text.
func bounded(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	cut := limit - len("…")
	for !utf8.RuneStart(s[cut]) {
		cut--
	}
	return s[:cut] + "…"
}

var errBatch = errors.New("the batch is damaged")

// apply adds a batch, whose first byte stands at offset in the file. A bad batch may
// leave some of its rows: the caller then makes the table again.
func (t *table) apply(batch []byte, offset int64) (newest int64, leaf [32]byte, err error) {
	d := decoder{all: batch, rest: batch}
	if int64(d.uint64()) != t.n {
		return 0, leaf, errBatch
	}
	newest = int64(d.uint64())
	copy(leaf[:], d.bytes(32))
	for n := d.count(); n > 0 && !d.bad; n-- {
		t.names = append(t.names, string(d.bytes(d.count())))
	}
	for n := d.count(); n > 0 && !d.bad; n-- {
		d.row(t, offset)
	}
	if d.bad || len(d.rest) > 0 {
		return 0, leaf, errBatch
	}
	return newest, leaf, nil
}

// decoder reads a batch.
type decoder struct {
	all, rest []byte
	bad       bool
}

func (d *decoder) row(t *table, offset int64) {
	r := row{flags: flags(d.byte())}
	if r.flags&isMissing != 0 {
		t.add(r)
		return
	}
	r.time = int64(d.uint64())
	for _, id := range []*uint16{&r.kind, &r.project, &r.environment, &r.subject, &r.cause, &r.actor} {
		n := d.count()
		d.bad = d.bad || n >= len(t.names)
		*id = uint16(n)
	}
	r.levels = levels(d.byte())
	d.bad = d.bad || int(r.levels.severity()) >= len(severities) || int(r.levels.direction()) >= len(directions)
	of := int64(-1)
	if r.flags&isAnnotation != 0 {
		of = int64(d.count())
	}
	n := d.count()
	d.bad = d.bad || n > maxSummary+1+maxFurther
	r.text, r.length = offset+int64(len(d.all)-len(d.rest)), uint16(n)
	d.bytes(n)
	if d.bad {
		return
	}
	t.add(r)
	if r.flags&isAnnotation != 0 {
		t.addReview(of)
	}
}

func (d *decoder) bytes(n int) []byte {
	if d.bad || n < 0 || n > len(d.rest) {
		d.bad = true
		return nil
	}
	b := d.rest[:n]
	d.rest = d.rest[n:]
	return b
}

func (d *decoder) byte() byte {
	if b := d.bytes(1); b != nil {
		return b[0]
	}
	return 0
}

func (d *decoder) uint64() uint64 {
	if b := d.bytes(8); b != nil {
		return binary.LittleEndian.Uint64(b)
	}
	return 0
}

// count reads a number of at most the rest's bytes, or an id or index as small.
func (d *decoder) count() int {
	n, size := binary.Uvarint(d.rest)
	if d.bad || size <= 0 || n > 1<<40 {
		d.bad = true
		return 0
	}
	d.rest = d.rest[size:]
	return int(n)
}
