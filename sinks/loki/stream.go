package loki

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/grafana/loki-client-go/pkg/labelutil"
	"github.com/prometheus/common/model"

	"github.com/auditrelay/auditrelay/relay"
)

// maxStreams bounds the streams that are remembered. One that was forgotten costs one more push
// when it is met again.
const maxStreams = 10_000

// stream is a stream in Loki: a tenant and labels.
type stream struct {
	tenant string
	labels labelutil.LabelSet
	text   string  // the labels in Loki's notation, sorted by name
	run    []int32 // its events of the delivery, as indexes, oldest first
	behind []int32 // those of run that are too late for it

	// newest is the timestamp, in Unix nanoseconds, of the newest entry that Loki is known to
	// have; entries that are more than lateAfter older are late. It has no meaning unless known
	// is set.
	newest int64
	known  bool

	level int
	late  *stream // made when it is needed; nil from byHour on
	ahead *stream // for entries dated in the future; made when it is needed
}

// The levels of streams. Entries that are too late for one go to the next.
const (
	inTime = iota
	lateStream
	byHour
)

// next returns the stream for entries that are too late for st; at the last level, that is the
// one for the hour of t. None comes after the last.
func (st *stream) next(t time.Time) *stream {
	switch st.level {
	case inTime:
		if st.late == nil {
			st.late = st.marked("true")
		}
		return st.late
	case lateStream:
		return st.marked(hour(t))
	default:
		return nil
	}
}

// aheadAfter is how much later than its receipt an event may be dated. It is well under Loki's
// window, and no more than Loki takes by default (creation_grace_period).
const aheadAfter = 10 * time.Minute

// of returns the stream for an event: st itself, or a separate one if the event is from the
// future. One such event would make all others of a stream too late for it, including those of
// other environments. The time of receipt decides, so that an event takes the same way when it
// is delivered again.
func (st *stream) of(e *relay.Event) *stream {
	if e.Received.IsZero() || e.Time.Sub(e.Received) <= aheadAfter {
		return st
	}
	if st.ahead == nil {
		st.ahead = st.marked("ahead")
	}
	return st.ahead
}

func hour(t time.Time) string { return t.UTC().Format("2006-01-02T15Z") }

// marked returns the stream with st's labels and another label late.
func (st *stream) marked(value string) *stream {
	labels := labelutil.LabelSet{LabelSet: maps.Clone(st.labels.LabelSet)}
	labels.LabelSet[lateLabel] = model.LabelValue(value)
	return &stream{tenant: st.tenant, labels: labels, text: labels.LabelSet.String(), level: st.level + 1}
}

// reach records that Loki has an entry of this time.
func (st *stream) reach(t int64) {
	if !st.known || t > st.newest {
		st.newest, st.known = t, true
	}
}

// Entries before lateBefore are too late for the stream.
func (st *stream) lateBefore(window time.Duration) int64 {
	if !st.known || st.newest < math.MinInt64+int64(window) {
		return math.MinInt64
	}
	return st.newest - int64(window)
}

// assign gives each event to its stream, and refuses those that Loki would refuse.
func (s *Sink) assign(events []relay.Event) {
	for i := range events {
		st, err := s.streamOf(&events[i])
		if err == nil {
			err = s.check(&events[i])
		}
		if err != nil {
			s.failed = append(s.failed, relay.Failure{Index: i, Err: relay.Permanent(err)})
			continue
		}
		st = st.of(&events[i])
		if len(st.run) == 0 {
			s.work = append(s.work, st)
		}
		st.run = append(st.run, int32(i))
	}
	for _, st := range s.work {
		slices.SortStableFunc(st.run, func(a, b int32) int { return events[a].Time.Compare(events[b].Time) })
	}
}

// streamOf finds the stream of e by its tenant and the values of its labels. It allocates
// nothing for a stream that is known.
func (s *Sink) streamOf(e *relay.Event) (*stream, error) {
	key := s.key[:0]
	if s.tenant != nil {
		key = s.tenant.AppendName(key, e, nil)
	}
	tenant := len(key)
	for i := range s.labels {
		key = append(key, 0)
		key = s.labels[i].value.Append(key, e, nil)
	}
	s.key = key
	if st := s.streams[string(key)]; st != nil {
		return st, nil
	}
	st := &stream{tenant: string(key[:tenant])}
	if s.tenant != nil {
		if err := checkTenant(st.tenant); err != nil {
			return nil, fmt.Errorf("tenant %.300q: %w", st.tenant, err)
		}
	}
	labels, err := s.labelSet(e)
	if err != nil {
		return nil, err
	}
	st.labels, st.text = labels, labels.LabelSet.String()
	s.streams[string(key)] = st
	return st, nil
}

func checkTenant(tenant string) error {
	odd := func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune("!-_.*'()", r)
	}
	switch {
	case tenant == "":
		return errors.New("it is empty, and Loki would not know whose event it is")
	case len(tenant) > maxTenant:
		return fmt.Errorf("it is longer than Loki's %d bytes", maxTenant)
	case tenant == "." || tenant == ".." || strings.ContainsFunc(tenant, odd):
		return errors.New("it may hold letters, digits and !-_.*'() only")
	}
	return nil
}

// labelSet returns the labels of e.
func (s *Sink) labelSet(e *relay.Event) (labelutil.LabelSet, error) {
	set := make(model.LabelSet, len(s.labels))
	for _, l := range s.labels {
		value := l.value.Append(nil, e, nil)
		if len(value) > maxLabelValue {
			return labelutil.LabelSet{}, fmt.Errorf("label %s has %d bytes, and Loki takes %d", l.name, len(value), maxLabelValue)
		}
		if len(value) > 0 { // Loki treats an empty label as absent
			set[model.LabelName(l.name)] = model.LabelValue(bytes.ToValidUTF8(value, []byte("?")))
		}
	}
	if len(set) == 0 {
		set[serviceName] = service
	}
	return labelutil.LabelSet{LabelSet: set}, nil
}
