package jsonscan

import "bytes"

// Wanted is a top-level string that [Lookup] is to find.
type Wanted struct {
	Quoted string // the key with its quotes: `"event_id"`; ASCII
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
//
// It searches without the first quote: JSON is so full of quotes that the search for a letter
// is far faster.
func missing(text []byte, wanted []Wanted) int {
	escaped := bytes.IndexByte(text, '\\') >= 0
	n := 0
	for i := range wanted {
		w := &wanted[i]
		if !w.Found && (escaped || bytes.Contains(text, []byte(w.Quoted[1:]))) {
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
