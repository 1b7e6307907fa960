package loki

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
	"unsafe"

	"github.com/grafana/loki/pkg/push"
	"github.com/klauspost/compress/snappy"

	"github.com/auditrelay/auditrelay/relay"
)

// check refuses events that Loki would refuse for good.
func (s *Sink) check(e *relay.Event) error {
	if len(e.Body) > int(s.cfg.LineBytes) {
		return fmt.Errorf("the body has %d bytes, and the sink's line_bytes is %d", len(e.Body), s.cfg.LineBytes)
	}
	if sec := e.Time.Unix(); sec < -maxSeconds || sec >= maxSeconds {
		return fmt.Errorf("the time %v is out of Loki's range", e.Time)
	}
	if n := s.ownSize(e); n+droppedSize > int(s.cfg.MetadataBytes) {
		return fmt.Errorf("the attributes have %d bytes, and the sink's metadata_bytes is %d", n, s.cfg.MetadataBytes)
	}
	return nil
}

// maxSeconds is how many seconds from 1970 fit into a count of nanoseconds.
const maxSeconds = 1<<63/1_000_000_000 - 1

// ownSize bounds the size of e's own attributes as metadata, in bytes.
func (s *Sink) ownSize(e *relay.Event) int {
	const names = len("id"+"source"+"type"+"subject"+"project"+"environment"+"receivedtime"+"datacontenttype") + len(time.RFC3339Nano)
	return names + len(e.ID) + len(e.Source) + len(e.Type) + len(e.Subject) + len(e.Project) + len(e.Environment) + len(e.ContentType)
}

const (
	dropped     = "metadata_dropped"
	droppedSize = len(dropped) + 10
)

// encoder makes pushes. It keeps its memory from one push to the next.
type encoder struct {
	*Sink

	request push.PushRequest
	entries []push.Entry
	meta    []push.LabelAdapter // the metadata of all entries, one after the other
	texts   []byte              // those texts of meta that are not the events' own
	names   map[string]string   // the sender's label names, mapped to those that are sent
	plain   []byte
	packed  []byte
}

// maxNames bounds encoder.names.
const maxNames = 1000

// encode makes a push of the events in run, in this order, for one stream. The result is valid
// until the next call.
func (c *encoder) encode(labels string, events []relay.Event, run []int32) ([]byte, error) {
	c.entries, c.meta, c.texts = c.entries[:0], c.meta[:0], c.texts[:0]
	for _, i := range run {
		e := &events[i]
		c.entries = append(c.entries, push.Entry{Timestamp: e.Time, Line: view(e.Body), StructuredMetadata: c.metadata(e)})
	}
	c.request.Streams = append(c.request.Streams[:0], push.Stream{Labels: labels, Entries: c.entries})
	size := c.request.Size()
	if cap(c.plain) < size {
		c.plain = make([]byte, size+size/4)
	}
	c.plain = c.plain[:size]
	if _, err := c.request.MarshalToSizedBuffer(c.plain); err != nil {
		return nil, fmt.Errorf("encode a push: %w", err)
	}
	c.packed = snappy.Encode(c.packed[:cap(c.packed)], c.plain)
	return c.packed, nil
}

// reset drops the events, and keeps the memory of a push of the usual size.
func (c *encoder) reset() {
	if cap(c.plain) > 2*firstLimit {
		c.plain, c.packed = nil, nil
	}
	clear(c.entries[:cap(c.entries)])
	clear(c.meta[:cap(c.meta)])
	clear(c.request.Streams)
}

// metadata returns what is sent along with e's line. Slices returned earlier stay valid when
// c.meta grows.
func (c *encoder) metadata(e *relay.Event) push.LabelsAdapter {
	start := len(c.meta)
	c.add("id", e.ID)
	c.add("source", e.Source)
	c.addIf(c.own.typ, "type", e.Type)
	c.add("subject", e.Subject)
	c.addIf(c.own.project, "project", e.Project)
	c.addIf(c.own.environment, "environment", e.Environment)
	at := len(c.texts)
	c.texts = e.Received.UTC().AppendFormat(c.texts, time.RFC3339Nano)
	c.add("receivedtime", view(c.texts[at:]))
	c.add("datacontenttype", e.ContentType)
	c.addLabels(start, e.Labels)
	return c.meta[start:len(c.meta):len(c.meta)]
}

func (c *encoder) addIf(wanted bool, name, value string) {
	if wanted {
		c.add(name, value)
	}
}

// add appends a pair, unless its value is empty, which Loki treats as absent.
func (c *encoder) add(name, value string) {
	if value == "" {
		return
	}
	if !utf8.ValidString(value) {
		value = strings.ToValidUTF8(value, "?") // otherwise Loki would remove it without a trace
	}
	c.meta = append(c.meta, push.LabelAdapter{Name: name, Value: value})
}

// addLabels appends as many of the sender's labels as fit, and records how many do not. The
// entry's metadata begins at start.
func (c *encoder) addLabels(start int, labels []relay.Label) {
	size := 0
	for _, l := range c.meta[start:] {
		size += len(l.Name) + len(l.Value)
	}
	first := len(c.meta)
	for i, l := range labels {
		if l.Value == "" {
			continue
		}
		name := unique(c.meta[first:], c.name(l.Name))
		size += len(name) + len(l.Value)
		if size+droppedSize > int(c.cfg.MetadataBytes) || len(c.meta)-start+1 >= c.cfg.MetadataEntries {
			c.add(dropped, strconv.Itoa(filled(labels[i:])))
			return
		}
		c.add(name, l.Value)
	}
}

func filled(labels []relay.Label) (n int) {
	for _, l := range labels {
		if l.Value != "" {
			n++
		}
	}
	return n
}

// unique appends _2 and so on to a name that is taken.
func unique(taken []push.LabelAdapter, name string) string {
	has := func(l push.LabelAdapter) bool { return l.Name == name }
	for n, plain := 2, name; slices.ContainsFunc(taken, has); n++ {
		name = plain + "_" + strconv.Itoa(n)
	}
	return name
}

// name returns the name under which a sender's label is sent.
func (c *encoder) name(name string) string {
	if known, ok := c.names[name]; ok {
		return known
	}
	if c.names == nil || len(c.names) >= maxNames {
		c.names = make(map[string]string)
	}
	clean := sanitise(name)
	c.names[strings.Clone(name)] = clean
	return clean
}

// sanitise returns a name that Loki leaves as it is: letters, digits and "_". It does not begin
// like one of the attributes.
func sanitise(name string) string {
	plain := func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '_' {
			return r
		}
		return '_'
	}
	return "label_" + strings.Map(plain, name)
}

// entrySize estimates the size of an entry in a push, in bytes.
func entrySize(e *relay.Event) int64 {
	const names, times, rest = 70, 50, 60
	n := len(e.Body) + len(e.ID) + len(e.Source) + len(e.Type) + len(e.Subject) + len(e.ContentType) +
		len(e.Project) + len(e.Environment) + names + times + rest
	for _, l := range e.Labels {
		n += len(l.Name) + len(l.Value) + len("label_") + 6
	}
	return int64(n)
}

// view returns b as a string that shares its bytes, which must not change while it is used.
func view(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }
