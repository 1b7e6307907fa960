package jsontext

import "bytes"

// Wanted is a top-level string that [Lookup] is to find.
type Wanted struct {
	Quoted string // the key with its quotes: `"event_id"`; ASCII
	needle needle // of the key; made when it is first needed
	// Value is set if the object has the key with a string. The first of
	// repeated keys counts.
	Value Raw
	Found bool // the object has the key, whatever its value
}

// After readFirst members, Lookup searches the text for the keys that it still wants.
const readFirst = 4

// Lookup fills wanted from the object in text. It reads as little as possible, and may not
// notice invalid JSON.
//
// Most events have the wanted keys at their start. To find that a key is absent, a search of
// the text costs less than reading all members.
func Lookup(text []byte, wanted []Wanted) {
	for i := range wanted {
		wanted[i].Value, wanted[i].Found = Raw{}, false
	}
	var s Scanner
	s.Reset(text)
	if s.Open('{') != nil {
		return
	}
	left := len(wanted)
	for n := 0; left > 0; n++ {
		if n == readFirst {
			if left = missing(text[s.Pos():], wanted); left == 0 {
				return
			}
		}
		if more, err := s.More('}', n); err != nil || !more {
			return
		}
		key, err := s.RawKey()
		if err != nil {
			return
		}
		w := find(key, wanted)
		if w == nil {
			if s.Skip() != nil {
				return
			}
			continue
		}
		w.Found = true
		left--
		if s.Peek() != '"' {
			err = s.Skip()
		} else {
			w.Value, err = s.String()
		}
		if err != nil {
			return
		}
	}
}

// missing counts the keys that may still be found in text. A key may be hidden by an escape.
func missing(text []byte, wanted []Wanted) int {
	escaped := bytes.IndexByte(text, '\\') >= 0
	n := 0
	for i := range wanted {
		w := &wanted[i]
		if !w.Found && (escaped || w.isIn(text)) {
			n++
		}
	}
	return n
}

func find(key Raw, wanted []Wanted) *Wanted {
	for i := range wanted {
		w := &wanted[i]
		if !w.Found && key.Is(w.Quoted[1:len(w.Quoted)-1]) {
			return w
		}
	}
	return nil
}

// isIn reports whether text contains the key.
func (w *Wanted) isIn(text []byte) bool {
	if w.needle.text == "" {
		w.needle = newNeedle(w.Quoted)
	}
	return w.needle.in(text)
}

// needle is a text of at least two bytes to search for. Its letters are as common in JSON as any,
// so [bytes.Index] stops often on its way. Its pairs of letters are rare: only where one of them
// stands, the text can be near.
type needle struct {
	text string
	// near has for a pair of bytes how many bytes after it the text may end, plus one; 0 for
	// pairs that the text has not.
	near [256]uint8
}

func newNeedle(text string) needle {
	n := needle{text: text}
	for i := 1; i < len(text); i++ {
		n.near[pair(text[i-1], text[i])] = uint8(len(text) - i) //nolint:gosec // a key is short
	}
	return n
}

// pair is a number for two bytes. Few pairs share it.
func pair(a, b byte) byte { return a*37 + b }

func (n *needle) in(text []byte) bool {
	size := len(n.text)
	for end := size; end <= len(text); {
		switch near := int(n.near[pair(text[end-2], text[end-1])]); {
		case near == 0:
			end += size - 1
		case near == 1 && string(text[end-size:end]) == n.text:
			return true
		default:
			end += max(1, near-1)
		}
	}
	return false
}
