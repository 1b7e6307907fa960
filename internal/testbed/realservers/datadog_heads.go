package realservers

import (
	"errors"
	"fmt"
	"strconv"
	"unicode/utf8"

	"github.com/auditrelay/auditrelay/internal/jsontext"
)

// datadogHead is the part of every entry the intake looks at.
type datadogHead struct {
	text      []byte // the entry; it shares the body's memory
	id        string // of the CloudEvent
	timestamp int64  // in milliseconds
	message   bool   // there is one
}

// datadogHeads reads a body in one pass: an array of objects in UTF-8, each with a message.
func datadogHeads(body []byte) ([]datadogHead, error) {
	var s jsontext.Scanner
	s.Reset(body)
	if !utf8.Valid(body) || s.Open('[') != nil {
		return nil, errors.New("the body is no JSON array in UTF-8")
	}
	heads := make([]datadogHead, 0, datadogEntries)
	for n := 0; ; n++ {
		more, err := s.More(']', n)
		if err != nil {
			return nil, err
		}
		if !more {
			return heads, s.End()
		}
		h, err := datadogHeadAt(&s, body)
		if err != nil {
			return nil, fmt.Errorf("entry %d: %w", n, err)
		}
		heads = append(heads, h)
	}
}

// datadogHeadAt reads the entry at s.
func datadogHeadAt(s *jsontext.Scanner, body []byte) (h datadogHead, err error) {
	s.Peek()
	start := s.Pos()
	err = eachMember(s, func(key jsontext.Raw) (err error) {
		switch {
		case key.Is("message"):
			h.message = true
			_, err = s.String()
		case key.Is("ce"):
			h.id, err = datadogID(s)
		case key.Is("timestamp"):
			s.Peek()
			at := s.Pos()
			if err = s.Skip(); err == nil {
				h.timestamp, err = strconv.ParseInt(string(body[at:s.Pos()]), 10, 64)
			}
		default:
			err = s.Skip()
		}
		return err
	})
	if err == nil && !h.message {
		err = errors.New("it has no message")
	}
	h.text = body[start:s.Pos()]
	return h, err
}

// datadogID reads the envelope, an object of strings.
func datadogID(s *jsontext.Scanner) (id string, err error) {
	err = eachMember(s, func(key jsontext.Raw) error {
		value, err := s.String()
		if err != nil || !key.Is("id") {
			return err
		}
		text, err := value.AppendText(nil)
		id = string(text)
		return err
	})
	return id, err
}

// eachMember reads an object; read reads the value of each member.
func eachMember(s *jsontext.Scanner, read func(key jsontext.Raw) error) error {
	if err := s.Open('{'); err != nil {
		return err
	}
	for n := 0; ; n++ {
		more, err := s.More('}', n)
		if err != nil || !more {
			return err
		}
		key, err := s.RawKey()
		if err != nil {
			return err
		}
		if err := read(key); err != nil {
			return err
		}
	}
}
