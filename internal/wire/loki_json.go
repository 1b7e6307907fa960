package wire

import (
	"errors"
	"fmt"
	"math"
	"sync"

	"github.com/auditrelay/auditrelay/internal/jsontext"
	"github.com/auditrelay/auditrelay/relay"
)

// DecodeLokiJSON decodes {"streams":[{"stream":{LABELS},"values":[[TIME,LINE,META]…]}…]}. Keys may
// come in any order; unknown ones, and further elements of an entry, are skipped. It overwrites
// body to unescape strings in place. It refuses streams and entries with more labels than
// limit, which applies to each of them.
//
// After an error, the body must not be used, and neither must the entries that were already
// handled. The error is ErrNoStreams, ErrOtherForm, one of the handler, or one that names the stream, the
// entry and the byte.
func DecodeLokiJSON(body []byte, limit LabelLimit, h Handler) error {
	d, _ := lokiJSONs.Get().(*lokiJSON)
	d.scan.Reset(body)
	d.h, d.limit = h, limit
	err := d.outcome(d.push())
	*d = lokiJSON{loki: d.kept()}
	lokiJSONs.Put(d)
	return err
}

// lokiJSONs keeps decoders, so that the memory of their labels is used again.
var lokiJSONs = sync.Pool{New: func() any { return new(lokiJSON) }}

type lokiJSON struct {
	loki
	scan jsontext.Scanner
	// late is where a stream's values are, if its labels follow them.
	late int
	// refused is the reason for leaving out the whole stream.
	refused error
}

// skipRefused skips the next value and reports it as refused.
func (d *lokiJSON) skipRefused(entries int, why error) error {
	if err := d.refuse(entries, why); err != nil {
		return err
	}
	return d.scan.Skip()
}

func (d *lokiJSON) push() error {
	others := false
	err := d.scan.Members(func(key []byte, _ error) error {
		if string(key) == "streams" {
			return d.streams()
		}
		others = true
		return d.scan.Skip()
	})
	if err != nil {
		return err
	}
	d.at = Place{Stream: d.at.Stream}
	if err = d.scan.End(); err == nil && others && d.at.Stream == 0 {
		return ErrOtherForm
	}
	return err
}

func (d *lokiJSON) streams() error {
	switch c := d.scan.Peek(); c {
	case '[':
	case 'n':
		return d.scan.Skip()
	default:
		return fmt.Errorf("streams is %s, not an array", jsontext.Kind(c))
	}
	return d.scan.Array(func(int) error {
		d.at = Place{Stream: d.at.Stream + 1}
		return d.stream()
	})
}

// errRepeated means that a stream has a key twice, and it is not known which one is right.
var errRepeated = errors.New(`"stream" or "values" stands twice`)

// errNoValues is for a stream in another form, such as Loki's legacy one, whose entries must
// not be lost in silence.
var errNoValues = errors.New(`there is no "values"`)

func (d *lokiJSON) stream() error {
	if c := d.scan.Peek(); c != '{' {
		return d.skipRefused(0, fmt.Errorf("it is %s, not an object", jsontext.Kind(c)))
	}
	d.refused, d.late = nil, 0
	d.labels.Reset(d.limit)
	var labels, values bool
	err := d.scan.Members(func(key []byte, _ error) error {
		switch {
		case string(key) == "stream" && !labels:
			labels = true
			return d.streamLabels()
		case string(key) == "values" && !values:
			values = true
			if !labels { // they wait for the labels
				d.late = d.scan.Pos()
				return d.scan.Skip()
			}
			return d.values()
		case string(key) == "stream":
			return d.skipRefused(0, errRepeated)
		case string(key) == "values" && d.scan.Peek() == '[':
			return d.refuseValues(errRepeated)
		}
		return d.scan.Skip()
	})
	if err == nil && !values {
		err = d.refuse(0, errNoValues)
	}
	if err != nil || d.late == 0 {
		return err
	}
	end := d.scan.Pos()
	d.scan.Seek(d.late)
	if err := d.values(); err != nil {
		return err
	}
	d.scan.Seek(end)
	return nil
}

func (d *lokiJSON) streamLabels() error {
	c := d.scan.Peek()
	if c != '{' {
		d.refused = fmt.Errorf("its labels are %s, not an object", jsontext.Kind(c))
		return d.scan.Skip()
	}
	bad, err := d.pairs(&d.labels)
	if bad != nil {
		d.refused = fmt.Errorf("label %w", bad)
	}
	return err
}

// pairs reads an object of strings. bad is the first fault of a pair; no pair after it is
// added.
func (d *lokiJSON) pairs(set *LabelSet) (bad, err error) {
	set.Reset(d.limit)
	n := 0
	err = d.scan.Members(func(name []byte, wrong error) error {
		n++
		value, wrongValue, err := d.text()
		if err != nil || bad != nil {
			return err
		}
		if wrong = errors.Join(wrong, wrongValue); wrong == nil {
			wrong = set.Add(relay.Label{Name: view(name), Value: view(value)})
		}
		if wrong != nil {
			bad = fmt.Errorf("%d: %w", n, wrong)
		}
		return nil
	})
	return bad, err
}

// text reads a string. bad is a fault of its content, while the structure is whole.
func (d *lokiJSON) text() (s []byte, bad, err error) {
	if c := d.scan.Peek(); c != '"' {
		if err := d.scan.Skip(); err != nil {
			return nil, nil, err
		}
		return nil, fmt.Errorf("it is %s, not a string", jsontext.Kind(c)), nil
	}
	s, err = d.scan.Unescape()
	if jsontext.IsContent(err) {
		return nil, err, nil
	}
	return s, nil, err
}

// values reads a stream's entries.
func (d *lokiJSON) values() error {
	switch c := d.scan.Peek(); c {
	case '[':
	case 'n':
		return d.scan.Skip()
	default:
		return d.skipRefused(0, fmt.Errorf("values is %s, not an array", jsontext.Kind(c)))
	}
	if d.refused != nil {
		return d.refuseValues(d.refused)
	}
	if err := d.call(d.h.Stream(d.labels.Labels)); err != nil {
		return err
	}
	err := d.scan.Array(func(i int) error {
		d.at.Entry = i + 1
		return d.oneEntry()
	})
	if err == nil {
		d.at.Entry = 0
	}
	return err
}

// refuseValues counts entries that are refused together.
func (d *lokiJSON) refuseValues(why error) error {
	entries := 0
	err := d.scan.Array(func(int) error {
		entries++
		return d.scan.Skip()
	})
	if err != nil {
		return err
	}
	return d.refuse(entries, why)
}

// oneEntry reads an entry. Like Loki, it skips a null.
func (d *lokiJSON) oneEntry() error {
	switch c := d.scan.Peek(); c {
	case '[':
	case 'n':
		return d.scan.Skip()
	default:
		return d.skipRefused(1, fmt.Errorf("it is %s, not an array", jsontext.Kind(c)))
	}
	d.entry = Entry{Timed: true}
	var bad error
	n := 0
	err := d.scan.Array(func(i int) error {
		wrong, err := d.element(i)
		if n++; bad == nil {
			bad = wrong
		}
		return err
	})
	if err != nil {
		return err
	}
	if bad == nil && n < 2 {
		bad = errors.New("it has no timestamp and line")
	}
	if bad != nil {
		return d.refuse(1, bad)
	}
	return d.call(d.h.Entry(d.at, &d.entry))
}

// element reads element n of an entry.
func (d *lokiJSON) element(n int) (bad, err error) {
	switch n {
	case 0:
		var s []byte
		if s, bad, err = d.text(); bad == nil && err == nil {
			d.entry.Time, bad = parseTime(s)
		}
		return within("timestamp", bad), err
	case 1:
		d.entry.Body, bad, err = d.text()
		return within("line", bad), err
	case 2:
		if c := d.scan.Peek(); c != '{' {
			return fmt.Errorf("structured metadata is %s, not an object", jsontext.Kind(c)), d.scan.Skip()
		}
		bad, err = d.pairs(&d.meta)
		d.entry.Labels = d.meta.Labels
		return within("structured metadata", bad), err
	}
	return nil, d.scan.Skip()
}

func within(what string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", what, err)
}

var errTime = errors.New("it is no count of nanoseconds since 1970, in decimal, within 64 bits")

// parseTime reads a decimal int64. It stands in each event, and strconv takes twice as long.
func parseTime(s []byte) (int64, error) {
	digits, limit := s, uint64(math.MaxInt64)
	negative := len(s) > 0 && s[0] == '-'
	if negative {
		digits, limit = s[1:], limit+1
	}
	if len(digits) == 0 || len(digits) > 19 {
		return 0, errTime
	}
	var v uint64 // 19 digits cannot overflow it
	for _, c := range digits {
		if c < '0' || c > '9' {
			return 0, errTime
		}
		v = v*10 + uint64(c-'0')
	}
	if v > limit {
		return 0, errTime
	}
	if negative {
		return -int64(v), nil //nolint:gosec // wraps to the least int64, as it must
	}
	return int64(v), nil
}
