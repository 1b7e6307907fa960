package jsontext

import "strconv"

// nesting records which of the open brackets are objects, the innermost last.
type nesting struct {
	object [MaxDepth / 64]uint64
	depth  int
}

func (n *nesting) push(object bool) bool {
	if n.depth == MaxDepth {
		return false
	}
	i, bit := n.depth/64, uint64(1)<<(n.depth%64)
	n.object[i] &^= bit
	if object {
		n.object[i] |= bit
	}
	n.depth++
	return true
}

func (n *nesting) inObject() bool {
	i := n.depth - 1
	return n.object[i/64]&(1<<(i%64)) != 0
}

// Skip reads one value of any kind, and checks its grammar. It does not recurse, and
// refuses a depth beyond MaxDepth.
func (s *Scanner) Skip() error {
	c := s.Peek()
	if c != '{' && c != '[' {
		return s.scalar(c)
	}
	var open nesting
	for {
		if c == '{' || c == '[' {
			if !open.push(c == '{') {
				return s.fail("it is nested deeper than " + strconv.Itoa(MaxDepth))
			}
			s.pos++
		} else if err := s.scalar(c); err != nil {
			return err
		}
		if err := s.nextInside(&open, c); err != nil || open.depth == 0 {
			return err
		}
		c = s.Peek()
	}
}

// nextInside goes on after a value or an opening bracket, which began with c, to the next value
// inside open brackets. It closes the brackets that end on the way.
func (s *Scanner) nextInside(open *nesting, c byte) error {
	read := 1
	if c == '{' || c == '[' {
		read = 0
	}
	for open.depth > 0 {
		object := open.inObject()
		end := byte(']')
		if object {
			end = '}'
		}
		more, err := s.More(end, read)
		if err != nil {
			return err
		}
		if more && object {
			_, err = s.RawKey()
		}
		if more {
			return err
		}
		open.depth--
		read = 1
	}
	return nil
}

func (s *Scanner) scalar(c byte) error {
	switch {
	case c == '"':
		_, err := s.String()
		return err
	case c == 't':
		return s.literal("true")
	case c == 'f':
		return s.literal("false")
	case c == 'n':
		return s.literal("null")
	case c == '-' || '0' <= c && c <= '9':
		return s.number()
	}
	return s.unexpected("a value")
}

func (s *Scanner) literal(word string) error {
	if len(s.buf)-s.pos < len(word) || string(s.buf[s.pos:s.pos+len(word)]) != word {
		return s.fail("a value is needed")
	}
	s.pos += len(word)
	return nil
}

// number reads -?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?
func (s *Scanner) number() error {
	s.oneOf("-")
	if !s.oneOf("0") && s.digits() == 0 {
		return s.unexpected("a digit")
	}
	if s.oneOf(".") && s.digits() == 0 {
		return s.unexpected("a digit")
	}
	if s.oneOf("eE") {
		s.oneOf("+-")
		if s.digits() == 0 {
			return s.unexpected("a digit")
		}
	}
	return nil
}

func (s *Scanner) oneOf(set string) bool {
	for i := range len(set) {
		if s.pos < len(s.buf) && s.buf[s.pos] == set[i] {
			s.pos++
			return true
		}
	}
	return false
}

func (s *Scanner) digits() int {
	start := s.pos
	for s.pos < len(s.buf) && '0' <= s.buf[s.pos] && s.buf[s.pos] <= '9' {
		s.pos++
	}
	return s.pos - start
}

// Kind names the kind of a value by its first byte c, for errors.
func Kind(c byte) string {
	switch c {
	case '{':
		return "an object"
	case '[':
		return "an array"
	case '"':
		return "a string"
	case 't', 'f':
		return "a boolean"
	case 'n':
		return "null"
	}
	return "a number"
}
