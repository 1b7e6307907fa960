package jsonscan

import "bytes"

// Wanted is a top-level string that [Lookup] looks for.
type Wanted struct {
	Quoted string // the key with its quotes: `"event_id"`; ASCII
	// Value is set where the object has the key with a string. Of keys that
	// repeat the first counts.
	Value Raw
	Found bool // the key stands there, whatever its value
}

// Lookup fills wanted from the object in text, in one pass that ends as soon as
// all are found. It reads no further than it must: text that is no JSON may
// go unnoticed.
func Lookup(text []byte, wanted []Wanted) {
	left := missing(text, wanted)
	var s Scanner
	s.Reset(text)
	if left == 0 || s.Open('{') != nil {
		return
	}
	for n := 0; left > 0; n++ {
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

// missing counts the wanted keys that may be in text, so that nothing is
// scanned for keys that are nowhere. A key may hide behind an escape.
//
// It is looked for without its first quote: quotes are so many in a JSON text
// that a search for one is far slower than one for a letter.
func missing(text []byte, wanted []Wanted) int {
	escaped := bytes.IndexByte(text, '\\') >= 0
	n := 0
	for i := range wanted {
		w := &wanted[i]
		w.Value, w.Found = Raw{}, false
		if escaped || bytes.Contains(text, []byte(w.Quoted[1:])) {
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
