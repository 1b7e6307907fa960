package datadog

import "unicode/utf8"

// cut returns the longest start of text, in valid UTF-8, that takes at most room bytes between
// quotes as appendText writes it.
func cut(text []byte, room int) []byte {
	for i := 0; i < len(text); {
		_, size := utf8.DecodeRune(text[i:])
		room -= size + escapes(text[i])
		if room < 0 {
			return text[:i]
		}
		i += size
	}
	return text
}

// escapes is the number of bytes appendText adds to a character starting with c.
func escapes(c byte) int {
	switch {
	case c == '"' || c == '\\' || c == '\n':
		return len(`\n`) - 1
	case c < ' ':
		return len(`\u0000`) - 1
	}
	return 0
}
