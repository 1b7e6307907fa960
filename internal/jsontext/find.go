package jsontext

// Find returns the value that p names, as it is written in body. The result is a part of body,
// without capacity to append in place.
//
// ok is false if there is no such value, if body is not JSON to its very end, and if a value
// that p does not lead through nests deeper than MaxDepth. Of several members with the
// same name the last counts, as in encoding/json, whatever the earlier ones contain. Names are
// compared by their text, escaped or not; an invalid text equals none.
//
// It reads body once and does not write to it. For valid JSON it allocates nothing, except for
// names of more than 256 bytes that have escapes.
func (p Pointer) Find(body []byte) (raw []byte, ok bool) {
	var s Scanner
	s.Reset(body)
	raw, err := s.find(p.tokens)
	if err != nil || s.End() != nil {
		return nil, false
	}
	return raw, raw != nil
}

// find reads one value to its end, and returns the value that tokens lead to from there, or nil if
// there is none. An object is read to its end, since a later member may repeat a name.
func (s *Scanner) find(tokens []token) (found []byte, err error) {
	switch c := s.Peek(); {
	case len(tokens) == 0:
		start := s.pos
		err = s.Skip()
		return s.buf[start:s.pos:s.pos], err
	case c == '{':
		err = s.Object(func(key Raw) (err error) {
			if !key.Is(tokens[0].name) {
				return s.Skip()
			}
			found, err = s.find(tokens[1:])
			return err
		})
	case c == '[' && tokens[0].index >= 0:
		err = s.Array(func(i int) (err error) {
			if i != tokens[0].index {
				return s.Skip()
			}
			found, err = s.find(tokens[1:])
			return err
		})
	default:
		err = s.Skip()
	}
	return found, err
}

// AppendValue appends the value in raw, from [Pointer.Find], as text: a string unescaped, and a
// number, true or false as written.
//
// ok is false, and dst is returned as it was, for values that have no text: null, which means
// no value; objects and arrays, which can be written in many ways; and strings with invalid
// UTF-8 or half of a surrogate pair.
func AppendValue(dst, raw []byte) (_ []byte, ok bool) {
	if len(raw) == 0 {
		return dst, false
	}
	switch raw[0] {
	case '{', '[', 'n':
		return dst, false
	case '"':
		var s Scanner
		s.Reset(raw)
		text, err := s.String()
		if err == nil {
			dst, err = text.AppendText(dst)
		}
		return dst, err == nil
	}
	return append(dst, raw...), true
}
