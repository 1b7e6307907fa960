package entry

import "unicode/utf8"

// maxInteger is how long an integer can be.
const maxInteger = len("-9223372036854775808")

// escapes is what encoding/json adds to a byte of a string, with its escaping
// of HTML; in JSON as it stands, only the HTML is escaped.
type escapes [256]uint8

var inString, inRaw = func() (s, raw escapes) {
	for c := range ' ' {
		s[c] = len6
	}
	for _, c := range "\"\\\n\r\t\b\f" {
		s[c] = 1
	}
	for _, c := range "<>&" {
		s[c], raw[c] = len6, len6
	}
	return s, raw
}()

// len6 is what \u0000 has more than the byte that it stands for.
const len6 = 5

// stringSize is the length of s as a JSON string, with its quotes. s is valid UTF-8.
func stringSize(s string) int { return len(`""`) + len(s) + added(s, &inString) }

// rawSize is how long JSON is at most when encoding/json copies it.
func rawSize(b []byte) int { return len(b) + added(view(b), &inRaw) }

// memberSize is the length of a member with its comma. name needs no escape, or
// is the text between the quotes.
func memberSize(name string, value int) int { return len(`"":,`) + len(name) + value }

func added(s string, by *escapes) int {
	n := 0
	for i := range len(s) {
		c := s[i]
		n += int(by[c])
		if c == 0xe2 && separator(s[i:]) {
			n += 3
		}
	}
	return n
}

// separator reports whether s starts with U+2028 or U+2029, which are escaped.
func separator(s string) bool {
	return len(s) >= 3 && s[0] == 0xe2 && s[1] == 0x80 && s[2]&^1 == 0xa8
}

// cut returns the longest start of s, which is valid UTF-8, that is at most room
// bytes long between the quotes of a JSON string.
func cut(s string, room int) string {
	for i, r := range s {
		room -= utf8.RuneLen(r)
		switch {
		case r < utf8.RuneSelf:
			room -= int(inString[r])
		case separator(s[i:]):
			room -= 3
		}
		if room < 0 {
			return s[:i]
		}
	}
	return s
}
