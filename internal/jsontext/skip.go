package jsontext

import "strconv"

// Skip reads one value of any kind, and checks its grammar. It does not recurse, and
// refuses a depth beyond MaxDepth.
func (s *Scanner) Skip() error {
	var ends [MaxDepth]byte // of the open arrays and objects, the innermost last
	for depth := 0; ; {
		read := 0 // at first, of what has just been opened
		switch c := s.Peek(); {
		case c != '{' && c != '[':
			if err := s.scalar(c); err != nil {
				return err
			}
			read = 1
		case depth == MaxDepth:
			return s.fail("it is nested deeper than " + strconv.Itoa(MaxDepth))
		default:
			ends[depth] = c + 2 // as '}' and ']' are
			depth++
			s.pos++
		}
		more := false
		for ; depth > 0 && !more; read = 1 {
			end, err := ends[depth-1], error(nil)
			if more, err = s.More(end, read); err != nil {
				return err
			}
			if !more {
				depth--
			} else if end == '}' {
				_, err = s.RawKey()
			}
			if err != nil {
				return err
			}
		}
		if !more {
			return nil
		}
	}
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
