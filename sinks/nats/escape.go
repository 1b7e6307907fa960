package nats

import "github.com/auditrelay/auditrelay/relay"

const hex = "0123456789ABCDEF"

// needsEscape reports whether a header's value needs percent-encoding by the binding.
func needsEscape(value string) bool {
	for i := range len(value) {
		if escapedInHeader(value[i]) {
			return true
		}
	}
	return false
}

// escapedInHeader follows the NATS protocol binding: space, double quote, percent, and
// everything except printable ASCII are escaped.
func escapedInHeader(c byte) bool { return c <= ' ' || c >= 0x7f || c == '"' || c == '%' }

func appendHeaderEscaped(dst []byte, value string) []byte {
	for i := range len(value) {
		if c := value[i]; escapedInHeader(c) {
			dst = append(dst, '%', hex[c>>4], hex[c&15])
		} else {
			dst = append(dst, c)
		}
	}
	return dst
}

// appendToken appends value as one token of a subject. It percent-encodes separators and
// wildcards ("." "*" ">"), "$" (with which the server's own subjects begin), "%", space, and
// everything except printable ASCII. "_" becomes "%5F", since "_" stands for the empty value.
// So different values are different tokens, and percent-decoding gives them back.
func appendToken(dst []byte, value string) []byte {
	if value == relay.NoValue {
		return append(dst, "%5F"...)
	}
	for i := range len(value) {
		switch c := value[i]; {
		case c <= ' ' || c >= 0x7f, c == '.', c == '*', c == '>', c == '$', c == '%':
			dst = append(dst, '%', hex[c>>4], hex[c&15])
		default:
			dst = append(dst, c)
		}
	}
	return dst
}
