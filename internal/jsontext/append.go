package jsontext

import "unicode/utf8"

// AppendString appends text as a JSON string. It escapes control characters, and the characters
// that some readers of lines take for line ends. JSON has no form for bytes outside UTF-8, so
// each becomes U+FFFD.
func AppendString[S ~string | ~[]byte](dst []byte, text S) []byte {
	dst = append(dst, '"')
	plain := 0 // text[plain:i] is not appended yet
	for i := 0; i < len(text); {
		c := text[i]
		if c >= ' ' && c != '"' && c != '\\' && c < 0x7f {
			i++
			continue
		}
		dst = append(dst, text[plain:i]...)
		if c < utf8.RuneSelf {
			dst = appendEscape(dst, c)
			i++
		} else {
			r, size := utf8.DecodeRuneInString(string(text[i:min(i+utf8.UTFMax, len(text))]))
			dst = appendRune(dst, r)
			i += size
		}
		plain = i
	}
	return append(append(dst, text[plain:]...), '"')
}

func appendEscape(dst []byte, c byte) []byte {
	const hex = "0123456789abcdef"
	switch c {
	case '"', '\\':
		return append(dst, '\\', c)
	case '\n':
		return append(dst, `\n`...)
	}
	return append(append(dst, `\u00`...), hex[c>>4], hex[c&15])
}

func appendRune(dst []byte, r rune) []byte {
	switch r {
	case 0x85:
		return append(dst, `\u0085`...)
	case 0x2028:
		return append(dst, `\u2028`...)
	case 0x2029:
		return append(dst, `\u2029`...)
	}
	return utf8.AppendRune(dst, r)
}
