package redact

import (
	"unicode"
	"unicode/utf8"
)

// appendFold appends name in a form equal for all names equal to a reader without
// regard to case, such as encoding/json. It may be given the start of name's own memory
// as dst, as the result is never longer.
func appendFold[S ~string | ~[]byte](dst []byte, name S) []byte {
	for i := 0; i < len(name); {
		c := name[i]
		if c < utf8.RuneSelf {
			if 'a' <= c && c <= 'z' {
				c -= 'a' - 'A'
			}
			dst = append(dst, c)
			i++
			continue
		}
		r, n := utf8.DecodeRuneInString(string(name[i:min(i+utf8.UTFMax, len(name))]))
		dst = utf8.AppendRune(dst, foldRune(r))
		i += n
	}
	return dst
}

// foldRune is the least of the runes equal to r except in case.
func foldRune(r rune) rune {
	for {
		next := unicode.SimpleFold(r)
		if next <= r {
			return next
		}
		r = next
	}
}

func fold(name string) string { return string(appendFold(nil, name)) }
