package jsonscan

import "unicode/utf8"

// AppendString appends text as a JSON string, and escapes no more than it must. Invalid UTF-8
// is ErrUTF8, since JSON cannot carry it.
func AppendString[S ~string | ~[]byte](dst []byte, text S) ([]byte, error) {
	const hex = "0123456789abcdef"
	start := len(dst)
	dst = append(dst, '"')
	plain, seen := 0, byte(0)
	for i := range len(text) {
		c := text[i]
		seen |= c
		if c >= ' ' && c != '"' && c != '\\' {
			continue
		}
		dst = append(dst, text[plain:i]...)
		plain = i + 1
		switch c {
		case '"', '\\':
			dst = append(dst, '\\', c)
		case '\n':
			dst = append(dst, '\\', 'n')
		default:
			dst = append(dst, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
		}
	}
	if seen >= utf8.RuneSelf && !utf8.ValidString(string(text)) {
		return dst[:start], ErrUTF8
	}
	dst = append(dst, text[plain:]...)
	return append(dst, '"'), nil
}
