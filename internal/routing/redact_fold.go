package routing

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// appendFold appends name in a form that is the same for all names that a reader may take for
// equal: one without regard to case, such as encoding/json, or one that normalises text first
// (Unicode NFKC), such as a search engine. So full-width letters become plain ones, "ß" becomes
// "ss", and "ı" becomes "i". dst may be the start of name's own memory.
func appendFold[S ~string | ~[]byte](dst []byte, name S) []byte {
	for i := range len(name) {
		if name[i] >= utf8.RuneSelf {
			return append(dst[:len(dst)-i], foldText(string(name))...)
		}
		dst = append(dst, upper(name[i]))
	}
	return dst
}

func upper(c byte) byte {
	if 'a' <= c && c <= 'z' {
		c -= 'a' - 'A'
	}
	return c
}

// foldText folds a name outside of ASCII. It drops characters that are invisible, and joins
// letters with their marks only then, since such a character keeps the two apart.
func foldText(name string) string {
	var out strings.Builder
	for _, r := range norm.NFKC.String(strings.Map(visible, norm.NFKD.String(name))) {
		switch r {
		case 'ß', 'ẞ':
			out.WriteString("SS")
		case 'ı':
			out.WriteByte('I')
		default:
			out.WriteRune(foldRune(r))
		}
	}
	return out.String()
}

// visible drops invisible characters, and the dot above, which follows the "i" that some readers
// make of "İ".
func visible(r rune) rune {
	if r == '\u0307' || unicode.In(r, unicode.Cf, unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector) {
		return -1
	}
	return r
}

// foldRune returns the smallest of the runes that are equal to r except in case.
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
