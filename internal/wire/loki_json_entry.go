package wire

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"

	"github.com/auditrelay/auditrelay/internal/jsontext"
)

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

// parseTime reads a decimal int64.
func parseTime(s []byte) (int64, error) {
	v, err := strconv.ParseInt(view(s), 10, 64)
	if digits := bytes.TrimPrefix(s, []byte("-")); err != nil || len(digits) > 19 || digits[0] == '+' {
		return 0, errTime
	}
	return v, nil
}
