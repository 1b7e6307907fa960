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
	f := finder{body: body}
	f.Reset(body)
	raw, err := f.find(p.tokens)
	if err != nil || f.End() != nil {
		return nil, false
	}
	return raw, raw != nil
}

// finder walks through a body. Its methods return nil for a value that is missing, and an error
// only if the body is not JSON.
type finder struct {
	Scanner

	body []byte
}

// find reads one value to its end, and returns the value that tokens lead to from there.
func (f *finder) find(tokens []token) ([]byte, error) {
	switch c := f.Peek(); {
	case len(tokens) == 0:
		start := f.Pos()
		err := f.Skip()
		return f.body[start:f.Pos():f.Pos()], err
	case c == '{':
		return f.member(tokens)
	case c == '[' && tokens[0].index >= 0:
		return f.element(tokens)
	}
	return nil, f.Skip()
}

// member reads an object to its end, since a later member may repeat the name.
func (f *finder) member(tokens []token) (found []byte, err error) {
	err = f.Object(func(key Raw) (err error) {
		if !same(key, tokens[0].name) {
			return f.Skip()
		}
		found, err = f.find(tokens[1:])
		return err
	})
	return found, err
}

func (f *finder) element(tokens []token) (found []byte, err error) {
	err = f.Array(func(i int) (err error) {
		if i != tokens[0].index {
			return f.Skip()
		}
		found, err = f.find(tokens[1:])
		return err
	})
	return found, err
}

// same reports whether key is name, in which each byte may be escaped with up to six.
func same(key Raw, name string) bool {
	if !key.Escaped {
		return string(key.Bytes) == name
	}
	if len(key.Bytes) > 6*len(name) {
		return false
	}
	var room [257]byte // one more, because AppendText needs it
	text, err := key.AppendText(room[:0])
	return err == nil && string(text) == name
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
